"""A running gang that lacks pods is told what that means before it is stopped."""

from msgspec.structs import replace

from kaiwo.explain import below_minimum, kept_places, why
from kaiwo.model.events import NominationChanged, PodGone, WorkloadChanged
from kaiwo.model.plan import Nomination
from kaiwo.model.policy import Policy
from kaiwo.runtime.kubernetes.publish_wait_reasons import WaitReasonPublisher
from tests.worlds import World

GANG = "default/gang"


def broken_gang(**changes: object) -> World:
    """One of three pods is lost, and smaller work has its place."""
    world = World(nodes=3)
    world.now_s = 1000
    world.submit("gang", pods=3, gpus_each=8).settle()
    whole = world.state.workloads[GANG]
    world.tell(PodGone(GANG, "main-2"), WorkloadChanged(replace(whole, roles=(replace(whole.roles[0], count=2),))))
    world.submit("small", gpus_each=1).settle()
    assert world.is_running("small")
    world.tell(WorkloadChanged(replace(whole, broken_since_s=1000, **changes)))
    world.decide()
    return world


def answer(world: World, policy: Policy | None = None) -> str:
    return why(world.state, GANG, policy or world.policy, world.now_s).answer


def test_why_says_when_an_incomplete_gang_is_stopped_and_what_is_in_its_way() -> None:
    world = broken_gang()
    world.now_s = 1018
    assert answer(world).startswith(
        "gang is running with 2 of the 3 pods that it needs; all of them will be stopped in 42 s unless the rest start "
        "before: "
    )
    assert "GPUs" in answer(world).partition("before: ")[2]
    assert not why(world.state, GANG, world.policy, world.now_s).no_change.startswith("It is already running")


def test_why_promises_no_stop_that_will_not_come() -> None:
    assert "the rest start when there is room" in answer(broken_gang(stale_grace_s=-1))
    assert "the rest start when there is room" in answer(broken_gang(), Policy(actions=("allocate",)))


def test_why_says_that_space_is_being_freed_for_the_rest() -> None:
    world = broken_gang()
    pod = world.state.pods["default/small"]["main-0"]
    devices = tuple(replace(pod.devices[0], gpu=f"gpu-{number}") for number in range(8))
    world.tell(NominationChanged(Nomination(GANG, "main-2", pod.node, devices)))
    assert "space is being freed for the rest" in below_minimum(world.state, GANG, world.policy, world.now_s)


def test_why_names_the_places_that_are_kept() -> None:
    world = World(nodes=3)
    world.now_s = 1000
    world.submit("gang", pods=3, gpus_each=8).settle()
    whole, pod = world.state.workloads[GANG], world.state.pods[GANG]["main-2"]
    kept = Nomination(GANG, "main-2", pod.node, pod.devices, lost_s=1000)
    fewer = replace(whole, roles=(replace(whole.roles[0], count=2),))
    world.tell(NominationChanged(kept), PodGone(GANG, "main-2"), WorkloadChanged(fewer))
    world.now_s = 1060
    expected = f"the place of 1 lost pod on {pod.node} is kept for its replacement for another 4 min"
    assert kept_places(world.state, GANG, world.policy, world.now_s) == expected
    assert answer(world).endswith(expected)
    world.tell(NominationChanged(replace(kept, due_s=1120)))
    assert kept_places(world.state, GANG, world.policy, world.now_s).endswith(
        "; no replacement is expected in the next 60 s"
    )


def test_a_gang_is_told_once_when_its_missing_pods_found_no_place() -> None:
    world, publisher = broken_gang(), WaitReasonPublisher()
    [notice] = publisher.incomplete_gangs(world.state, world.policy, 1001)
    assert notice.workload == GANG
    assert notice.sentence.startswith("running with 2 of the 3 pods that it needs; all of them will be stopped in 59 s")
    assert publisher.incomplete_gangs(world.state, world.policy, 1002) == []
    world.finish("small")
    world.decide()
    world.tell(WorkloadChanged(replace(world.state.workloads[GANG], broken_since_s=0)))
    assert publisher.incomplete_gangs(world.state, world.policy, 1003) == []
    world.tell(PodGone(GANG, "main-2"))
    world.submit("again", gpus_each=1, priority=9).settle()
    world.tell(WorkloadChanged(replace(world.state.workloads[GANG], broken_since_s=1004)))
    world.decide()
    assert len(publisher.incomplete_gangs(world.state, world.policy, 1005)) == 1


def test_a_gang_whose_replacement_was_not_tried_yet_is_not_told_yet() -> None:
    world, publisher = broken_gang(), WaitReasonPublisher()
    world.state.retry_all_classes()
    assert publisher.incomplete_gangs(world.state, world.policy, 1001) == []
    world.decide()
    assert len(publisher.incomplete_gangs(world.state, world.policy, 1002)) == 1
