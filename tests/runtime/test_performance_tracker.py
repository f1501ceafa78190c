"""Reports of progress become speeds of nodes: measured over expected, faded, neutral while nothing is known."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.history import Journal
from kaiwo.model.events import (
    NodeSpeedsMeasured,
    PodChanged,
    ProgressReported,
    TopologyChanged,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.performance import HALF_LIFE_S, NodeSpeed, ProgressReport, blended, usual_permille
from kaiwo.model.plan import encode_plan
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Role, Workload
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.loop.performance_tracker import GAP_S, NodeSpeedFile, PerformanceTracker
from kaiwo.runtime.loop.replay import replay
from kaiwo.snapshot.cluster_state import ClusterState
from tests.decide.levels.fabrics import LEAF, fabric, leaves_of, nodes_of
from tests.runtime.reported_speeds import report, report_steps, started
from tests.worlds import World

RATED = Topology(
    "fabric",
    (TopologyLevel("spine", "net/spine"), TopologyLevel("leaf", "net/leaf", uplink_mb_s=50_000, uplinks=4)),
    node_port_mb_s=50_000,
    node_ports=1,
)


def speeds(world: World) -> dict[str, int]:
    return {name: speed.permille for name, speed in world.state.speeds.nodes.items()}


def test_a_step_is_compared_with_what_was_expected() -> None:
    world = started(fabric(2), "train", pods=2, gpus_each=8)
    report(world, PerformanceTracker(), "train", step_us=4_000_000, expected_us=2_000_000)
    assert speeds(world) == {"l0-n0": 500, "l0-n1": 500}


def test_without_an_expectation_the_fastest_step_of_the_work_counts() -> None:
    world = started(fabric(3), "train", pods=2, gpus_each=8)
    tracker = PerformanceTracker()
    report(world, tracker, "train", "main-0", step_us=2_000_000)
    report(world, tracker, "train", "main-1", step_us=2_500_000)
    assert speeds(world) == {"l0-n0": 1000, "l0-n1": 800}


def test_a_bandwidth_is_compared_with_the_cost_model() -> None:
    """Two nodes with a port of 50 GB/s each: 48.5 GB/s are left for data."""
    world = started(fabric(2).tell(TopologyChanged(RATED)), "train", pods=2, gpus_each=8)
    report(world, PerformanceTracker(), "train", bandwidth_mb_s=24_250)
    assert speeds(world) == {"l0-n0": 500, "l0-n1": 500}


def test_a_bandwidth_says_nothing_where_no_rate_is_known() -> None:
    world = started(fabric(2), "train", pods=2, gpus_each=8)
    assert len(report(world, PerformanceTracker(), "train", bandwidth_mb_s=24_250)) == 1
    assert speeds(world) == {}
    assert "default/train" in world.state.speeds.progress, "it is shown all the same"


def test_a_report_of_a_pod_counts_for_its_node_alone() -> None:
    world = started(fabric(2), "train", pods=2, gpus_each=8)
    report(world, PerformanceTracker(), "train", "main-1", step_us=2_000_000, expected_us=1_000_000)
    assert speeds(world) == {nodes_of(world, "train")["main-1"]: 500}


def test_reports_that_come_too_fast_are_shown_but_not_measured() -> None:
    world = started(fabric(1), "train", gpus_each=8)
    tracker = PerformanceTracker()
    report(world, tracker, "train", step_us=1_000_000, expected_us=1_000_000)
    for _ in range(100):
        report(world, tracker, "train", step_us=9_000_000, expected_us=1_000_000)
    assert speeds(world) == {"l0-n0": 1000}
    assert world.state.speeds.progress["default/train"][""].step_us == 9_000_000
    world.now_s += GAP_S
    report(world, tracker, "train", step_us=2_000_000, expected_us=1_000_000)
    assert speeds(world) == {"l0-n0": 875}  # a quarter of 500, three quarters of 1000


def test_a_report_of_work_without_pods_measures_nothing() -> None:
    world = fabric(1)
    assert len(report(world, PerformanceTracker(), "gone", step_us=1_000_000, expected_us=500_000)) == 1
    assert speeds(world) == {}


def test_reports_are_forgotten_with_their_workload_and_speeds_are_not() -> None:
    world = started(fabric(1), "train", gpus_each=8)
    report(world, PerformanceTracker(), "train", step_us=1_000_000, expected_us=500_000)
    world.tell(WorkloadGone("default/train"))
    assert not world.state.speeds.progress
    assert speeds(world) == {"l0-n0": 500}


def test_work_goes_to_the_leaf_in_which_work_ran_better() -> None:
    """By everything else, the leaf of the first gang would be taken again."""
    world = fabric(2, 2, 2, leaves_per_spine=3)
    tracker = PerformanceTracker()
    leaf_of_gang = {}
    for at, step_ms in enumerate((2_000, 1_000, 1_000)):
        started(world, f"old-{at}", pods=2, gpus_each=8, required_level=LEAF)
        [leaf_of_gang[at]] = leaves_of(world, f"old-{at}")
        report(world, tracker, f"old-{at}", step_us=step_ms * 1000, expected_us=1_000_000)
    for at in range(3):
        world.finish(f"old-{at}")
    [choice] = world.submit("new", pods=2, gpus_each=8, required_level=LEAF).decide().domains
    [leaf] = leaves_of(world, "new")
    assert leaf in (leaf_of_gang[1], leaf_of_gang[2])
    assert choice.performance == 500, "the usual speed"


def test_where_nothing_was_measured_every_domain_is_neutral() -> None:
    world = fabric(2, 2).submit("new", pods=2, gpus_each=8, required_level=LEAF)
    [choice] = world.decide().domains
    assert choice.performance == 500


def test_a_prediction_that_is_wrong_everywhere_changes_nothing() -> None:
    """All run at half the expected speed: none is worse than another, or than one of which nothing is known."""
    world = fabric(2, 2, 2)
    tracker = PerformanceTracker()
    for at in range(2):
        started(world, f"old-{at}", pods=2, gpus_each=8, required_level=LEAF)
        report(world, tracker, f"old-{at}", step_us=2_000_000, expected_us=1_000_000)
    world.submit("new", pods=2, gpus_each=8, required_level=LEAF)
    [choice] = world.decide().domains
    assert choice.performance == 500


def test_what_was_measured_fades() -> None:
    def performance_after(days: int) -> int:
        world = fabric(2, 1, 1)
        world.tell(NodeSpeedsMeasured({"l0-n0": NodeSpeed(500, 1), "l0-n1": NodeSpeed(500, 1)}))
        world.tell(NodeSpeedsMeasured({name: NodeSpeed(1000, 1) for name in ("l1-n0", "l2-n0", "away")}))
        world.now_s = 1 + days * HALF_LIFE_S
        [choice] = world.submit("new", pods=2, gpus_each=8, required_level=LEAF).decide().domains
        return choice.performance

    assert [performance_after(days) for days in (0, 1, 2, 40)] == [250, 375, 437, 499]


def test_old_speeds_do_not_blend_with_new_ones() -> None:
    assert blended(NodeSpeed(1000, 1), 500, 100).permille == 875
    assert blended(NodeSpeed(1000, 1), 500, HALF_LIFE_S + 1).permille == 500


@given(st.lists(st.integers(0, 4000), max_size=9))
def test_the_usual_speed_is_one_that_was_measured(permilles: list[int]) -> None:
    usual = usual_permille(NodeSpeed(each, 1) for each in permilles)
    assert usual in (*(each for each in permilles if each), *([0] if not any(permilles) else []))


def test_speeds_survive_a_restart(tmp_path: Path) -> None:
    world = started(fabric(2), "train", pods=2, gpus_each=8)
    tracker = PerformanceTracker(store=NodeSpeedFile(str(tmp_path)))
    report(world, tracker, "train", step_us=2_000_000, expected_us=1_000_000)
    tracker.save(world.state)
    [known] = PerformanceTracker(store=NodeSpeedFile(str(tmp_path))).known_before()
    assert isinstance(known, NodeSpeedsMeasured)
    assert {name: speed.permille for name, speed in known.speeds.items()} == {"l0-n0": 500, "l0-n1": 500}
    (tmp_path / "node-speeds.json").write_text("{half a fi")
    assert PerformanceTracker(store=NodeSpeedFile(str(tmp_path))).known_before() == []


def test_a_journal_base_holds_reports_and_speeds() -> None:
    world = started(fabric(3), "train", pods=2, gpus_each=8)
    tracker = PerformanceTracker(Policy(slow_for_s=0))
    report_steps(world, tracker, "train", {"main-0": 1000, "main-1": 900}, 60)
    copy = ClusterState()
    copy.patch(world.state.events())
    assert copy.speeds.nodes == world.state.speeds.nodes
    assert copy.speeds.progress == world.state.speeds.progress
    assert copy.events() == world.state.events()


@pytest.mark.parametrize("segment_bytes", [1, 2**23])
def test_cycles_after_reports_replay_to_the_same_plan(tmp_path: Path, segment_bytes: int) -> None:
    world = fabric(2, 2, 2)
    numbers = []
    with Journal(tmp_path / "journal", segment_bytes=segment_bytes) as journal:
        scheduler = CycleRunner(journal)

        def take(*events: object) -> None:
            scheduler.state.patch(events)  # type: ignore[arg-type]
            scheduler.journal_events(events)  # type: ignore[arg-type]

        take(*world.state.events())
        tracker = PerformanceTracker()
        for at in range(4):
            role = Role(Request(gpus=4), count=2)
            take(WorkloadChanged(Workload(f"default/w{at}", (role,), submitted_s=at, required_level=LEAF)))
            decision = scheduler.cycle(now_s=10 + at)
            assert decision is not None
            numbers.append(decision.summary.number)
            pods = scheduler.state.pods[f"default/w{at}"].values()
            take(*[PodChanged(replace(pod, phase=Phase.RUNNING)) for pod in list(pods)])
            told = ProgressReported(ProgressReport(f"default/w{at}", 10 + at, "", 1_000_000 * (3 - at % 3), 1_000_000))
            take(told)
            measured = tracker.measure(scheduler.state, [told])
            assert measured is not None
            take(measured)
    for number in numbers:
        result = replay(str(tmp_path), number)
        assert result.now == result.then, number


def test_the_same_snapshot_gives_the_same_plan() -> None:
    def plan() -> bytes:
        world = fabric(2, 2)
        world.tell(NodeSpeedsMeasured({"l0-n0": NodeSpeed(700, 1), "l1-n1": NodeSpeed(900, 1)}))
        return encode_plan(world.submit("new", pods=2, gpus_each=8, required_level=LEAF).decide())

    assert plan() == plan()
