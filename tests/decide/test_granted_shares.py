"""What is granted is what was requested."""

import pytest
from hypothesis import given
from msgspec.structs import replace

from kaiwo.explain import why
from kaiwo.model.events import Event, PodChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload, role_of
from tests.properties.strategies import states
from tests.properties.test_laws import policies, world_of
from tests.worlds import World


@given(states(), policies)
def test_every_pod_gets_as_many_devices_and_as_much_of_each_as_it_asked_for(
    events: list[Event], policy: Policy
) -> None:
    world = world_of(events, policy)
    for plan in world.settle():
        for start in plan.starts:
            want = role_of(world.state.workloads[start.workload], start.pod).request
            sizes = {gpu.id: gpu for gpu in world.state.node_objects[start.node].gpus}
            assert len({share.gpu for share in start.devices}) == len(start.devices) == want.gpus
            for share in start.devices:
                size, is_healthy = sizes[share.gpu].memory_mib, sizes[share.gpu].healthy
                due = (want.gpu_milli, want.gpu_milli * size // 1000)
                due = (want.gpu_mib * 1000 // size, want.gpu_mib) if want.is_memory else due
                assert ((share.milli, share.mib), is_healthy) == (due, True)


@pytest.mark.parametrize("strategy", ["fragmentation-aware", "best-fit", "first-fit", "worst-fit", "round-robin"])
def test_shares_on_two_devices_are_never_granted_on_one(strategy: str) -> None:
    world = World(gpus_per_node=4, policy=Policy(gpu_strategy=strategy))
    for number in range(3):
        share = Share(f"gpu-{number}", 600, 600 * 196_608 // 1000)
        world.tell(PodChanged(Pod(f"other/w{number}", "main-0", "node-0", devices=(share,))))
    world.submit("gang", pods=3, fraction_milli=300, gpus_each=2).settle()
    pods = world.state.pods.get("default/gang", {}).values()
    assert all(len(pod.devices) == 2 for pod in pods)


def test_memory_requests_do_not_jump_the_queue() -> None:
    world = World(gpus_per_node=8).queue("a").queue("b")
    for number in range(8):
        world.submit(f"a{number}", memory_mib=196_608, queue="a").submit(f"b{number}", gpus_each=1, queue="b")
    world.settle()
    assert sum(world.is_running(f"b{number}") for number in range(8)) == 4


def test_a_role_without_pods_gets_none() -> None:
    roles = (Role(Request(gpus=1), "none", 0), Role(Request(gpus=2), "some", 1))
    world = World().tell(WorkloadChanged(Workload("default/job", roles)))
    world.settle()
    assert list(world.state.pods["default/job"]) == ["some-0"]


def test_a_weight_below_zero_turns_a_score_around_and_forbids_nothing() -> None:
    world = World(nodes=1, policy=Policy(score_weights={"pack": -10})).running("old", gpus=4)
    world.submit("new", gpus_each=1).settle()
    assert world.is_running("new")


def test_a_mistyped_queue_is_answered_with_one_that_exists() -> None:
    world = World().queue("default", namespaces=("default",)).submit("job", gpus_each=1, queue="defualt")
    world.settle()
    answer = why(world.state, "default/job", world.policy, 0)
    assert answer.change is not None
    assert answer.change.kind == "other-queue"
    assert replace(world.state.workloads["default/job"], queue="default").queue in answer.change.sentence
