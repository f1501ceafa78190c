"""A life's rules as values."""

import signal

import pytest

from kaiwo.clusters.embedded import lifecycle
from kaiwo.clusters.embedded.lifecycle import Ending, Exit, ExitReason, Run, TrackedWorkload, new_workload
from kaiwo.model.amounts import duration
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Role, Workload, breaks_gang
from kaiwo.model.workload_record import Program, WorkloadRecord, WorkloadState
from tests.clusters.kinds import work


def life(**fields: object) -> TrackedWorkload:
    retries = fields.pop("retries", 0)
    return new_workload(WorkloadRecord(work("a", **fields), Program(retries=retries)))  # type: ignore[arg-type]


def pods(*phases: Phase) -> list[Pod]:
    return [Pod("default/a", f"main-{index}", "node-1", phase) for index, phase in enumerate(phases)]


@pytest.mark.parametrize(
    ("phases", "state"),
    [
        ((), WorkloadState.WAITING),
        ((Phase.ASSUMED, Phase.ASSUMED), WorkloadState.STARTING),
        ((Phase.RUNNING, Phase.ASSUMED), WorkloadState.STARTING),
        ((Phase.RUNNING, Phase.RUNNING), WorkloadState.RUNNING),
        ((Phase.DONE, Phase.RUNNING), WorkloadState.RUNNING),
        ((Phase.DONE, Phase.RELEASING), WorkloadState.STOPPING),
        ((Phase.DONE,), WorkloadState.WAITING),
    ],
)
def test_the_state_follows_from_the_pods(phases: tuple[Phase, ...], state: WorkloadState) -> None:
    assert lifecycle.with_state(life(pods=2), pods(*phases)).record.state is state


def test_a_held_workload_is_held_only_while_it_has_no_pods() -> None:
    held = life(held=True)
    assert held.record.state is WorkloadState.HELD
    assert lifecycle.with_state(held, pods(Phase.RELEASING)).record.state is WorkloadState.STOPPING


def test_failures_count_against_the_retries() -> None:
    one = life(retries=2)
    states = []
    for _ in range(3):
        failed = lifecycle.fail(one, Exit(code=1), "main-0", 100)
        one = lifecycle.end(failed, 100)
        states.append((failed.wants_pods, one.record.state, one.workload.not_before_s))
    assert states == [
        (True, WorkloadState.WAITING, 101),
        (True, WorkloadState.WAITING, 102),
        (False, WorkloadState.FAILED, 0),
    ]


def test_a_cancel_outranks_a_failure_and_is_not_undone_by_an_eviction() -> None:
    failed = lifecycle.fail(life(retries=5), Exit(code=1), "main-0", 0)
    cancelled = lifecycle.stop_all(failed, Ending.CANCEL, 0, "cancelled")
    assert lifecycle.stop_all(cancelled, Ending.EVICT, 0).ending is Ending.CANCEL
    assert lifecycle.end(cancelled, 9).record.state is WorkloadState.CANCELLED


def test_refusals_are_forgotten_once_it_runs() -> None:
    refused = lifecycle.refuse(lifecycle.refuse(life(), 0, "no room"), 0, "no room")
    assert (refused.refusals, refused.workload.not_before_s) == (2, 2)
    assert lifecycle.with_state(refused, pods(Phase.RUNNING)).refusals == 0


def test_an_ended_workload_waits_again_with_fresh_retries() -> None:
    over = lifecycle.end(lifecycle.fail(life(), Exit(code=1), "main-0", 5), 6)
    again = lifecycle.wait_again(over, 70)
    assert (again.failures, again.record.state, again.workload.submitted_s) == (0, WorkloadState.WAITING, 70)
    assert (again.record.ended_s, again.record.message, again.record.exit_code) == (0, "", 0)


def test_a_gang_breaks_when_one_role_falls_below_its_minimum() -> None:
    roles = (Role(Request(), "boss"), Role(Request(), "worker", count=3, minimum=2))
    workload = Workload("default/a", roles)
    assert not breaks_gang(workload, ["boss-0", "worker-0", "worker-2"])
    assert breaks_gang(workload, ["boss-0", "worker-0"])
    assert breaks_gang(workload, ["worker-0", "worker-1", "worker-2"])


@pytest.mark.parametrize(
    ("simulated_s", "estimate_s", "limit_s", "ends_s", "is_cut_short"),
    [
        (30, 900, 0, 130, False),
        (0, 900, 0, 1000, False),
        (0, 0, 0, 700, False),
        (30, 0, 30, 130, False),
        (0, 0, 5, 105, True),
    ],
)
def test_how_long_simulated_work_takes(
    simulated_s: int, estimate_s: int, limit_s: int, ends_s: int, is_cut_short: bool
) -> None:
    record = WorkloadRecord(work("a", estimate_s=estimate_s, time_limit_s=limit_s), Program(simulated_s=simulated_s))
    run = lifecycle.simulated_run(record, Run("1", "default/a", "main-0"), 100)
    assert (run.ends_s, run.is_cut_short) == (ends_s, is_cut_short)


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        (Exit(3), "pod main-0 ended with exit code 3"),
        (Exit(-signal.SIGKILL), "pod main-0 was ended by SIGKILL"),
        (Exit(-63), "pod main-0 was ended by signal 63"),
        (Exit(0, ExitReason.STOPPED), "pod main-0 was stopped from outside"),
        (Exit(-15, ExitReason.TIME_LIMIT), "stopped at its time limit of 2 h 30 min"),
        (Exit(127, message="the command 'x' was not found"), "pod main-0: the command 'x' was not found"),
    ],
)
def test_failures_are_sentences(end: Exit, sentence: str) -> None:
    assert lifecycle.failure_sentence(work("a", time_limit_s=9000), end, "main-0") == sentence


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (45, "45 s"), (90, "1 min 30 s"), (90_000, "1 d 1 h")])
def test_durations_are_words(seconds: int, words: str) -> None:
    assert duration(seconds) == words
