"""What keeps work from being tried at all, in numbers; and what a confirmed start remembers."""

from msgspec.structs import replace

from kaiwo.model.events import PodChanged
from kaiwo.model.obstacle import Reason
from kaiwo.model.workload import Phase, Workload
from kaiwo.snapshot.eligibility import gate_obstacles
from tests.worlds import World


def test_each_dependency_is_one_workload_of_which_none_is_there() -> None:
    workload = Workload("default/w", (), after=("default/a", "default/b"), after_failed=("default/c",))
    found = gate_obstacles(World().state, workload, 0)
    assert [(each.reason, each.need, each.have, each.unit, each.subject) for each in found] == [
        (Reason.DEPENDENCY, 1, 0, "workloads", "default/a"),
        (Reason.DEPENDENCY, 1, 0, "workloads", "default/b"),
        (Reason.DEPENDENCY_FAILED, 1, 0, "workloads", "default/c"),
    ]


def test_work_waits_until_its_second() -> None:
    workload = Workload("default/w", (), not_before_s=10)
    (found,) = gate_obstacles(World().state, workload, 9)
    assert (found.reason, found.need, found.have, found.unit) == (Reason.NOT_BEFORE, 10, 0, "s")
    assert gate_obstacles(World().state, workload, 10) == ()


def test_a_pod_that_fills_a_gap_keeps_its_deadline_where_it_runs_and_nowhere_else() -> None:
    world = World(nodes=2).running("w", gpus=1)
    (pod,) = world.state.pods["default/w"].values()
    other = "node-1" if pod.node == "node-0" else "node-0"

    def told(**changes: object) -> int:
        world.tell(PodChanged(replace(pod, until_s=70)), PodChanged(replace(pod, **changes)))
        return world.state.pods["default/w"][pod.name].until_s

    assert told(phase=Phase.RUNNING) == 70  # who confirms a start says nothing of it
    assert told(until_s=90) == 90
    assert told(node=other) == 0
