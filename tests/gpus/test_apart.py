"""A grade that was demanded is kept when neighbours come: those without limits of their own go elsewhere, or wait."""

import random

import pytest

from kaiwo.explain import why
from kaiwo.gpus.isolation_grades import smallest_masked_milli, tenants_allow_return
from kaiwo.model.events import PodChanged, PodGone
from kaiwo.model.gpus.gpu import DEMANDS_LIMITS, TAKES_TURNS, Share
from kaiwo.model.obstacle import Reason
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from kaiwo.snapshot.node_table import EditableNodeTable
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.worlds import World

STRICT = Request(gpus=1, gpu_milli=500, least_grade="cu-mask")
PLAIN = Request(gpus=1, gpu_milli=400)
TIME_SLICED = Request(gpus=1, gpu_milli=400, isolation="time-slicing")
TINY, TINY_MIB = Request(gpus=1, gpu_milli=20), Request(gpus=1, gpu_mib=1_000)


def one_gpu(model: str = "MI300X", gpus: int = 1) -> World:
    return World(nodes=0).node("a", gpus=gpus, model=model)


@pytest.mark.parametrize("other", [TIME_SLICED, TINY, TINY_MIB])
@pytest.mark.parametrize("is_strict_first", [True, False])
def test_a_share_that_demands_a_mask_and_one_without_never_meet(other: Request, is_strict_first: bool) -> None:
    first, second = (STRICT, other) if is_strict_first else (other, STRICT)
    world = one_gpu().submit("first", request=first)
    world.settle()
    world.submit("second", request=second).settle()
    assert world.is_running("first")
    assert not world.is_running("second")
    assert world.why("second") in ([Reason.NOT_ENOUGH_FREE_GPU_SHARE], [Reason.NOT_ENOUGH_FREE_GPU_MEMORY])
    answer = why(world.state, "default/second", world.policy, world.now_s).answer
    assert answer.endswith("free; tenants from which it could not be isolated share GPUs with more")
    world.finish("first").settle()
    assert world.is_running("second")


@pytest.mark.parametrize("other", [TIME_SLICED, TINY, TINY_MIB])
def test_where_there_is_another_gpu_each_has_its_own(other: Request) -> None:
    world = one_gpu(gpus=2).submit("strict", request=STRICT).submit("other", pods=3, minimum=1, request=other)
    world.settle()
    assert world.is_running("strict")
    assert world.is_running("other")
    assert not set(world.devices_of("strict")) & set(world.devices_of("other"))


def test_shares_with_a_mask_of_their_own_come_beside_it() -> None:
    world = one_gpu().submit("strict", request=STRICT).submit("plain", request=PLAIN)
    world.settle()
    assert world.devices_of("strict") == world.devices_of("plain") == ["a/gpu-0"]


def test_nobody_is_kept_out_where_nobody_demands_anything() -> None:
    world = one_gpu().submit("plain", request=PLAIN).submit("turns", request=TIME_SLICED).submit("tiny", request=TINY)
    world.settle()
    assert all(world.is_running(name) for name in ("plain", "turns", "tiny"))


def test_on_an_nvidia_gpu_a_small_share_has_its_limits_by_mps() -> None:
    strict = Request(gpus=1, gpu_milli=500, least_grade="mps")
    world = one_gpu("H200").submit("strict", request=strict).submit("tiny", request=TINY)
    world.settle()
    assert world.is_running("tiny")
    world.submit("turns", request=TIME_SLICED).settle()
    assert not world.is_running("turns")


def test_who_is_stopped_for_a_demanding_share_leaves_a_device_that_it_may_have() -> None:
    world = one_gpu().submit("turns", request=TIME_SLICED).submit("rest", request=Request(gpus=1, gpu_milli=600))
    world.settle()
    world.submit("urgent", request=STRICT, priority=100).settle()
    assert world.is_running("urgent")
    assert not world.is_running("turns")


def test_space_that_is_kept_for_a_demanding_share_is_not_spoiled_while_another_leaves() -> None:
    world = one_gpu().submit("turns", request=TIME_SLICED)
    world.settle()
    world.submit("urgent", request=STRICT, priority=100)
    (eviction,) = world.decide().evictions
    assert eviction.workload == "default/turns"
    world.submit("late", request=TIME_SLICED)
    assert world.decide().starts == ()  # it would fit beside what is kept
    world.let_go().settle()
    assert world.is_running("urgent")
    assert not world.is_running("late")


def test_a_trial_that_is_undone_leaves_no_trace() -> None:
    world = one_gpu(gpus=2).submit("strict", request=STRICT).submit("turns", request=TIME_SLICED)
    world.settle()
    working = WorkingCopy(world.snapshot())
    tenants = working.view.tenants
    demanding, small = dict(tenants.demanding), dict(tenants.small)
    (turns,) = world.state.pods["default/turns"].values()
    with working.trial():
        working.release_uncharged(turns)
        assert not tenants.small
    assert (tenants.demanding, tenants.small) == (demanding, small)
    assert demanding
    assert small


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_and_goes_the_demands_are_kept(seed: int) -> None:
    draw = random.Random(seed)
    world = World(nodes=2, gpus_per_node=2)
    alive: list[str] = []
    for number in range(60):
        if alive and draw.random() < 0.4:
            world.finish(alive.pop(draw.randrange(len(alive))))
        else:
            request = draw.choice((STRICT, PLAIN, TIME_SLICED, TINY, TINY_MIB))
            alive.append(f"w{number}")
            world.submit(alive[-1], request=request, priority=draw.choice((0, 0, 50)))
        world.settle()
        assert_demands_are_kept(world)
        assert_books_are_right(world)


def assert_demands_are_kept(world: World) -> None:
    tenants: dict[str, set[str]] = {}
    for pods in world.state.pods.values():
        for pod in pods.values():
            for share in pod.devices:
                kind = TAKES_TURNS if share.milli < smallest_masked_milli("MI300X") else pod.beside
                tenants.setdefault(f"{pod.node}/{share.gpu}", set()).add(kind)
    assert not any({DEMANDS_LIMITS, TAKES_TURNS} <= kinds for kinds in tenants.values())


def assert_books_are_right(world: World) -> None:
    """What was patched event by event is what a table that is built anew says."""
    state = world.state
    fresh = EditableNodeTable(state.node_objects)
    for name, node in state.node_objects.items():
        fresh.write_node(node, state.allocations_on.get(name, {}).values(), 0)
    kept = state.nodes.tenants
    assert (kept.demanding, kept.small) == (fresh.tenants.demanding, fresh.tenants.small)


def test_a_cluster_that_tells_another_demand_of_a_pod_is_believed() -> None:
    world = one_gpu().submit("strict", request=STRICT)
    world.settle()
    (pod,) = world.state.pods["default/strict"].values()
    world.tell(PodChanged(type(pod)(pod.workload, pod.name, pod.node, pod.phase, pod.devices)))
    world.tell(PodGone(pod.workload, pod.name))
    assert not world.state.nodes.tenants.demanding


@pytest.mark.parametrize("request_", [STRICT, TIME_SLICED], ids=["demanding", "time-sliced"])
def test_a_node_that_is_defined_again_counts_each_tenant_once(request_: Request) -> None:
    other = TIME_SLICED if request_ is STRICT else STRICT
    world = one_gpu().submit("first", request=request_)
    world.settle()
    world.node("a", gpus=1, labels={"rack": "1"})
    world.finish("first").submit("second", request=other).settle()
    assert world.is_running("second")


@pytest.mark.parametrize(("less", "returns"), [(0, True), (1, False)])
def test_the_smallest_share_with_a_mask_may_return_beside_a_demanding_one(less: int, returns: bool) -> None:
    world = one_gpu().submit("strict", request=STRICT)
    world.settle()
    milli = smallest_masked_milli("MI300X") - less
    pod = Pod("default/back", "main-0", "a", devices=(Share("gpu-0", milli, 1),))
    assert tenants_allow_return(WorkingCopy(world.snapshot()).view, pod, 0) is returns
