"""Jobs arrive, run, are preempted and end on a virtual clock, as the shipped scheduler decides."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import Mode
from kaiwo.model.node import Node
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.simulate.engine.event_engine import EventEngine, Scenario
from kaiwo.simulate.engine.job import SimulatedJob, split_gpus
from kaiwo.simulate.engine.node_events import NodeEvent
from kaiwo.simulate.engine.run_record import RunRecord
from kaiwo.simulate.engine.service_orders import ORDERS, service_order
from kaiwo.simulate.job_run import equal_nodes


def job(name: str, at_s: int, runs_s: int, gpus: int = 1, group: str = "") -> SimulatedJob:
    pods, each = split_gpus(gpus)
    return SimulatedJob(name, at_s, runs_s, Request(gpus=each), pods, group=group)


def simulate(jobs: list[SimulatedJob], order: str = "fifo", nodes: int = 1, gpus: int = 1, **more: object) -> RunRecord:
    chosen = service_order(order)
    actions = ("allocate", "preempt") if chosen.preempts else ("allocate",)
    rules = Policy(actions=actions, promises=0)
    scenario = Scenario(equal_nodes(nodes, gpus), rules, builtin_registry(), chosen, **more)  # type: ignore[arg-type]
    return EventEngine(scenario).run(jobs)


def ends(record: RunRecord) -> dict[str, int]:
    return {name: at_s for name, (_, at_s) in record.ended.items()}


def test_a_job_that_waits_starts_at_the_second_the_gpu_is_free() -> None:
    record = simulate([job("a", 0, 10), job("b", 1, 5), job("c", 2, 1)])
    assert ends(record) == {"a": 10, "b": 15, "c": 16}
    assert record.busy_milli_s == record.capacity_milli_s == 16_000


def test_all_that_happens_at_one_instant_is_one_decision() -> None:
    together = [job(f"job-{number}", 5, 10) for number in range(8)]
    record = simulate(together, nodes=1, gpus=8)
    assert set(ends(record).values()) == {15}
    assert record.cycles <= 2


def test_a_shorter_job_stops_a_longer_one_which_goes_on_where_it_was() -> None:
    record = simulate([job("long", 0, 100), job("short", 30, 10)], "shortest-remaining-service")
    assert ends(record) == {"short": 40, "long": 110}
    assert [cause for _, cause in record.evictions] == ["preempt"]
    assert record.lost_gpu_milli_s == 0


def test_a_restart_costs_exactly_what_was_said() -> None:
    record = simulate([job("long", 0, 100), job("short", 30, 10)], "shortest-remaining-service", restart_s=7)
    assert ends(record) == {"short": 40, "long": 117}
    assert record.lost_gpu_milli_s == 7_000


def test_a_restart_never_costs_more_than_the_job_had_run() -> None:
    record = simulate([job("long", 0, 100), job("short", 3, 10)], "shortest-remaining-service", restart_s=60)
    assert ends(record)["long"] == 113


def test_a_job_that_is_nearly_done_is_not_stopped_for_a_short_one() -> None:
    record = simulate([job("long", 0, 100), job("short", 95, 10)], "shortest-remaining-service")
    assert ends(record) == {"long": 100, "short": 110}
    assert not record.evictions


def test_one_large_job_does_not_stop_many_small_ones_that_need_less_together() -> None:
    jobs = [job("small", 0, 50, gpus=1), job("large", 10, 45, gpus=8)]
    assert not simulate(jobs, "shortest-remaining-service", gpus=8).evictions


def test_least_attained_service_lets_a_new_job_overtake_without_knowing_its_length() -> None:
    record = simulate([job("old", 0, 100_000), job("new", 50_000, 60)], "least-attained-service")
    assert ends(record)["new"] < 50_000 + 120
    assert ends(record)["old"] == 100_060


def test_least_attained_service_is_blind() -> None:
    """Two jobs that differ only in a length that lies in the future are treated alike until one of them ends."""
    one = simulate([job("a", 0, 1_000), job("b", 0, 9_000)], "least-attained-service")
    other = simulate([job("a", 0, 1_000), job("b", 0, 90_000)], "least-attained-service")
    assert ends(one)["a"] == ends(other)["a"]
    assert one.starts == other.starts


def test_learned_run_times_let_short_work_start_before_large_work() -> None:
    """A job for the whole node waits for the last ones. Those of a kind that is over sooner may start beside them."""
    before = [
        job(f"{kind}-{number}", 0, runs_s) for kind, runs_s in (("short", 50), ("long", 3_000)) for number in "123"
    ]
    jobs = [*before, job("long-9", 4_000, 3_000), job("large", 4_100, 10, gpus=4), job("short-9", 4_200, 50)]
    rules = Policy(promises=1, hold_off_s=0, max_wait_s=60)
    starts = {}
    for learns in (False, True):
        scenario = Scenario(equal_nodes(1, 4), rules, builtin_registry(), learns_run_times=learns)
        starts[learns] = EventEngine(scenario).run(jobs).starts["short-9"]
    assert starts == {False: 7_010, True: 4_200}


def test_a_failed_node_takes_the_work_with_it() -> None:
    failure = (NodeEvent(60, "node-1", "fail"), NodeEvent(200, "node-1", "repair"))
    record = simulate([job("a", 0, 100)], node_events=failure)
    assert ends(record) == {"a": 300}
    assert (record.failures, record.lost_gpu_milli_s) == (1, 60_000)


def test_a_gang_that_loses_one_node_starts_again_as_a_whole() -> None:
    failure = (NodeEvent(60, "node-1", "fail"), NodeEvent(200, "node-1", "repair"))
    record = simulate([job("gang", 0, 100, gpus=16)], nodes=2, gpus=8, node_events=failure)
    assert ends(record) == {"gang": 300}
    assert record.failures == 1


def test_capacity_follows_failures() -> None:
    failure = (NodeEvent(10, "node-1", "fail"), NodeEvent(30, "node-1", "repair"))
    record = simulate([job("a", 0, 40, gpus=1)], nodes=2, node_events=failure)
    assert record.capacity_milli_s == 2_000 * record.finished_s - 20 * 1_000


def test_a_node_is_partitioned_when_its_last_pod_has_ended() -> None:
    gpus = (Gpu("gpu-0", "MI300X", 196_608),)
    node = Node("node-1", 100_000, 100_000, gpus=gpus)
    change = NodeEvent(10, "node-1", "partition", Mode("CPX", "NPS4"), takes_s=300)
    part = SimulatedJob("part", 20, 50, Request(gpus=1, partition="CPX"))
    scenario = Scenario((node,), Policy(promises=0), builtin_registry(), node_events=(change,))
    record = EventEngine(scenario).run([job("whole", 0, 100), part])
    assert ends(record) == {"whole": 100, "part": 100 + 300 + 50}


def test_a_run_can_be_cut_off() -> None:
    record = simulate([job("a", 0, 10), job("b", 0, 1_000)], gpus=2, until_s=100)
    assert (ends(record), record.unfinished) == ({"a": 10}, 1)


jobs_of_any_kind = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 300), st.sampled_from([1, 1, 2, 4, 8, 16]), st.sampled_from("xy")),
    min_size=1,
    max_size=25,
)


@given(jobs_of_any_kind, st.sampled_from(sorted(ORDERS)), st.sampled_from([0, 13]))
@settings(max_examples=60, deadline=None)
def test_no_work_is_lost_or_invented(rows: list[tuple[int, int, int, str]], order: str, restart_s: int) -> None:
    jobs = [job(f"job-{at:02d}", *row) for at, row in enumerate(rows)]
    record = simulate(jobs, order, nodes=2, gpus=8, restart_s=restart_s)
    assert len(record.ended) == len(jobs)
    work = sum(each.gpu_milli * each.runs_s for each in jobs)
    assert record.busy_milli_s == work + record.lost_gpu_milli_s
    assert all(at_s >= each.submitted_s + each.runs_s for each, at_s in record.ended.values())
    assert all(sample.used_milli <= sample.capacity_milli for sample in record.samples)


@given(jobs_of_any_kind, st.sampled_from(sorted(ORDERS)))
@settings(max_examples=20, deadline=None)
def test_the_same_jobs_give_the_same_run(rows: list[tuple[int, int, int, str]], order: str) -> None:
    jobs = [job(f"job-{at:02d}", *row) for at, row in enumerate(rows)]
    first, second = simulate(jobs, order, nodes=2, gpus=8), simulate(jobs[::-1], order, nodes=2, gpus=8)
    assert ends(first) == ends(second)
    assert first.evictions == second.evictions
