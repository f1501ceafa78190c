"""A queue pays for GPU memory, rounded up; on the device it rounds down, and the MiB bind."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.clusters.local import LocalCluster
from kaiwo.explain import obstacles_of
from kaiwo.model.events import NodeChanged, PodChanged, PodGone
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import Plan, Start
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload_record import Program
from tests.clusters.kinds import full, some_nodes, work
from tests.clusters.local.restarts import first_events
from tests.waiting import run
from tests.worlds import World, audit

MI300X_MIB = 196_608
sizes_mib = st.integers(1, 300_000)


def devices(*sizes: int) -> World:
    world = World(nodes=0)
    gpus = tuple(Gpu(f"gpu-{number}", "L40S", size) for number, size in enumerate(sizes))
    return world.tell(NodeChanged(Node("n", cpu_milli=10**6, memory_mib=10**6, pods=10**4, gpus=gpus)))


def share_of(world: World, name: str) -> Share:
    (pod,) = world.state.pods[f"default/{name}"].values()
    return pod.devices[0]


def used_milli(world: World, queue: str = "default") -> int:
    return world.state.used.get(queue, (0, 0, 0))[0]


def test_no_memory_is_free_of_charge() -> None:
    """98 MiB of an MI300X are less than a thousandth of it: they ran in a queue whose limit is 0."""
    world = World().queue("default", gpu_limit=0).submit("tiny", memory_mib=98)
    world.settle()
    assert not world.is_running("tiny")
    (obstacle,) = obstacles_of(world.state, "default/tiny", world.policy, world.now_s)
    assert (obstacle.reason, obstacle.need, obstacle.have) == (Reason.QUEUE_LIMIT, 1, 0)
    world.queue("default", gpu_limit=1).submit("another", memory_mib=98, submitted_s=1).settle()
    assert world.is_running("tiny")
    assert not world.is_running("another")
    assert (share_of(world, "tiny").milli, used_milli(world)) == (0, 1)


def test_a_thousand_small_requests_are_no_way_around_a_limit() -> None:
    world = World().queue("default", gpu_limit=50)
    for number in range(100):
        world.submit(f"tiny-{number:03d}", memory_mib=98)
    world.settle()
    assert sum(world.is_running(f"tiny-{number:03d}") for number in range(100)) == 50
    assert used_milli(world) == 50


def test_a_request_at_its_limit_starts_on_a_larger_device() -> None:
    world = devices(40_000, 80_000).queue("default", gpu_limit=500)
    world.submit("half", memory_mib=40_000).settle()
    assert share_of(world, "half").gpu == "gpu-1"
    assert used_milli(world) == 500


def test_a_queue_may_reclaim_what_its_memory_costs() -> None:
    """Its demand rounds up as its charge does: it would be above its fair share by a thousandth otherwise."""
    world = World(nodes=1, gpus_per_node=1).queue("lab", quota_milli=0).queue("default", quota_milli=0)
    world.submit("large", pods=4, memory_mib=49_000, queue="default", minimum=1).settle()
    world.now_s = 1_000
    world.submit("small", pods=2, memory_mib=20_000, queue="lab")
    plans = world.settle()
    assert world.is_running("small"), plans


@given(sizes_mib, sizes_mib)
def test_the_charge_is_the_smallest_number_of_thousandths_that_holds_the_memory(size: int, asked: int) -> None:
    want = Request(gpus=1, gpu_mib=asked)
    charge = want.charge_on(size)
    assert charge >= 1
    assert charge * size >= asked * 1000
    assert charge == 1 or (charge - 1) * size < asked * 1000
    assert 0 <= charge - want.milli_on(size) <= 1


@given(sizes_mib, st.integers(10, 999), sizes_mib)
def test_of_a_fraction_and_memory_the_larger_need_binds(size: int, fraction: int, asked: int) -> None:
    world = devices(size).submit("both", fraction_milli=fraction, memory_mib=asked)
    world.settle()
    assert world.is_running("both") == (asked <= size)
    if asked <= size:
        share = share_of(world, "both")
        assert share.milli == max(fraction, asked * 1000 // size)
        assert share.mib == max(asked, fraction * size // 1000)
        assert used_milli(world) == share.charge_milli == max(fraction, -(-asked * 1000 // size))


@given(
    st.lists(st.integers(40_000, 200_000), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from([1000, 1000, 100, 333, 500]), st.integers(0, 90_000)), min_size=1, max_size=12),
    st.integers(0, 3_000),
    st.sampled_from(["fragmentation-aware", "worst-fit"]),
)
def test_no_device_and_no_limit_is_exceeded_and_nothing_is_left_behind(
    sizes: list[int], asks: list[tuple[int, int]], limit: int, strategy: str
) -> None:
    world = devices(*sizes).queue("default", gpu_limit=limit)
    world.policy = Policy(gpu_strategy=strategy)
    for number, (fraction, memory) in enumerate(asks):
        world.submit(f"w{number}", gpus_each=1, fraction_milli=fraction, memory_mib=memory)
    world.settle()
    assert audit(world.state) == []
    pods = [pod for each in world.state.pods.values() for pod in each.values()]
    assert used_milli(world) == sum(share.charge_milli for pod in pods for share in pod.devices) <= limit
    assert all(share.charge_milli for pod in pods for share in pod.devices)
    world.tell(*(PodGone(pod.workload, pod.name) for pod in pods))
    assert used_milli(world) == 0


def test_two_needs_that_never_fit_on_one_device_are_told() -> None:
    world = devices(40_000)
    world.submit("half", fraction_milli=600).settle()
    world.submit("both", fraction_milli=500, memory_mib=10_000).settle()
    (obstacle,) = obstacles_of(world.state, "default/both", world.policy, world.now_s)
    assert (obstacle.reason, obstacle.need, obstacle.have) == (Reason.NOT_ENOUGH_FREE_GPU_SHARE, 500, 400)
    world.submit("more", fraction_milli=100, memory_mib=30_000).settle()
    (obstacle,) = obstacles_of(world.state, "default/more", world.policy, world.now_s)
    assert (obstacle.reason, obstacle.need, obstacle.have) == (Reason.NOT_ENOUGH_FREE_GPU_MEMORY, 30_000, 16_000)


def test_all_of_a_gpu_that_has_an_amount_of_memory_needs_a_device_of_that_size() -> None:
    world = devices(40_000, 80_000)
    world.submit("large", request=Request(gpus=1, device_mib=60_000)).settle()
    assert share_of(world, "large").gpu == "gpu-1"
    world.submit("huge", request=Request(gpus=1, device_mib=100_000)).settle()
    (obstacle,) = obstacles_of(world.state, "default/huge", world.policy, world.now_s)
    assert (obstacle.reason, obstacle.need, obstacle.have) == (Reason.NOT_ENOUGH_GPU_MEMORY, 100_000, 80_000)


@pytest.mark.parametrize("mib", [98, 20_000])
def test_memory_that_an_older_version_granted_is_charged_after_a_restart(tmp_path: Path, mib: int) -> None:
    async def first() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(2), speed=1000.0, grace_s=1.0)
        request = Request(gpus=1, gpu_mib=mib)
        job = work("old")
        role = replace(job.roles[0], request=request)
        await cluster.work.submit([(replace(job, roles=(role,)), Program(simulated_s=10**6))])
        node = some_nodes(2)[0]
        size = node.gpus[0].memory_mib
        share = Share(node.gpus[0].id, mib * 1000 // size, mib)
        await cluster.apply(Plan(starts=(Start(full("old"), "main-0", node.name, (share,)),)))
        await cluster.close()

    run(first())
    (pod,) = [event.pod for event in run(first_events(tmp_path)) if isinstance(event, PodChanged)]
    assert pod.devices[0].charge_milli == Request(gpus=1, gpu_mib=mib).charge_on(some_nodes(2)[0].gpus[0].memory_mib)
