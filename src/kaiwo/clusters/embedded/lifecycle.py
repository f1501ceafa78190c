"""The lifecycle of a workload as values: its next state after a start, a failure, a stop or an end. Pure."""

import enum
import signal
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.plan_checks import STILL_STOPPING, back_off_s
from kaiwo.manifests.values.names import ARRAY_LABEL, all_tasks
from kaiwo.model.amounts import duration, memory
from kaiwo.model.workload import Phase, Pod, Workload, breaks_gang, request_of
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState

SIMULATED_S = 600  # how long simulated work takes by default
STILL_STOPPING_S = 86_400  # "not before" while pods are stopping; reset when the last one is gone


class Ending(enum.StrEnum):
    """What happens to a workload when the last of its stopping pods is gone."""

    NONE = ""
    CANCEL = "cancel"
    FAIL = "fail"
    REQUEUE = "requeue"
    EVICT = "evict"
    REFUSE = "refuse"


class ExitReason(enum.StrEnum):
    EXITED = "exited"  # by itself
    STOPPED = "stopped"  # on request
    TIME_LIMIT = "time-limit"
    OUT_OF_MEMORY = "out-of-memory"
    LOST = "lost"  # its supervisor was lost
    NEVER_STARTED = "never-started"


class Exit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a run. A signal's number is negative, as in a WorkloadRecord."""

    code: int = 0
    reason: ExitReason = ExitReason.EXITED
    message: str = ""
    peak_mib: int = 0  # the most memory that it used; 0: not known

    @property
    def is_success(self) -> bool:
        return self.code == 0 and self.reason is ExitReason.EXITED


OUT_OF_TIME = Exit(code=-signal.SIGTERM, reason=ExitReason.TIME_LIMIT)


class Run(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One start of one pod. A process has no planned end; simulated work has."""

    id: str
    workload: str
    pod: str
    attempt: int = 1
    is_process: bool = False
    ends_s: int = 0
    is_cut_short: bool = False  # what ends it is the time limit
    submission: int = 1  # of its workload's name


class PlacedRun(msgspec.Struct, frozen=True, gc=False):
    pod: Pod
    run: Run


class TrackedWorkload(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A workload's record, with what only the cluster needs to know."""

    record: WorkloadRecord
    failures: int = 0  # attempts that count against the retries
    refusals: int = 0  # starts refused in a row
    ending: Ending = Ending.NONE

    @property
    def workload(self) -> Workload:
        return self.record.workload

    @property
    def is_over(self) -> bool:
        return self.record.state.is_over

    @property
    def needs_queue(self) -> bool:
        """It may run again in its queue: it has not ended and is not being cancelled."""
        return not self.is_over and self.ending is not Ending.CANCEL and not self.is_interrupted

    @property
    def is_interrupted(self) -> bool:
        """It was preempted and cannot resume: its interactive input is gone."""
        return self.ending is Ending.EVICT and self.record.program.is_interactive

    @property
    def wants_pods(self) -> bool:
        """The scheduler still has something to do for it, now or when its pods are gone."""
        return self.needs_queue and (self.ending is not Ending.FAIL or self.failures <= self.record.program.retries)


def new_workload(record: WorkloadRecord) -> TrackedWorkload:
    return TrackedWorkload(replace(record, state=WorkloadState.HELD if record.workload.held else WorkloadState.WAITING))


def begin_attempt(tracked: TrackedWorkload, now_s: int) -> TrackedWorkload:
    attempt = tracked.record.attempt + 1
    record = replace(tracked.record, attempt=attempt, started_s=now_s, ended_s=0, exit_code=0, message="")
    return replace(tracked, record=record)


def refuse(tracked: TrackedWorkload, now_s: int, why: str) -> TrackedWorkload:
    """A start was refused: the workload waits, longer each time."""
    record = replace(tracked.record, message=why)
    return end(replace(tracked, record=record, refusals=tracked.refusals + 1, ending=Ending.REFUSE), now_s)


def fail(tracked: TrackedWorkload, end: Exit, pod: str, now_s: int) -> TrackedWorkload:
    """One of its pods failed, and the attempt with it. The other pods are stopped before the next attempt."""
    record = replace(tracked.record, exit_code=end.code, message=failure_sentence(tracked.workload, end, pod))
    tracked = replace(tracked, record=record, failures=tracked.failures + 1, ending=Ending.FAIL)
    return _not_before(tracked, now_s + STILL_STOPPING_S, STILL_STOPPING)


def stop_all(tracked: TrackedWorkload, ending: Ending, now_s: int, message: str = "") -> TrackedWorkload:
    """All its pods are being stopped. The first reason counts, unless it is cancelled or requeued later."""
    if tracked.ending and ending not in (Ending.CANCEL, Ending.REQUEUE):
        return tracked
    record = replace(tracked.record, message=message or tracked.record.message)
    tracked = replace(tracked, record=record, ending=ending, refusals=tracked.refusals + (ending is Ending.REFUSE))
    return tracked if ending is Ending.CANCEL else _not_before(tracked, now_s + STILL_STOPPING_S, STILL_STOPPING)


def end(tracked: TrackedWorkload, now_s: int) -> TrackedWorkload:
    """The last of its stopping pods is gone."""
    ending, is_interrupted = tracked.ending, tracked.is_interrupted
    tracked = replace(tracked, ending=Ending.NONE)
    match ending:
        case Ending.CANCEL:
            return _over(tracked, WorkloadState.CANCELLED, now_s)
        case Ending.EVICT if is_interrupted:
            record = replace(tracked.record, exit_code=-signal.SIGTERM)
            return _over(replace(tracked, record=record), WorkloadState.FAILED, now_s)
        case Ending.FAIL if tracked.failures > tracked.record.program.retries:
            return _over(tracked, WorkloadState.FAILED, now_s)
        case Ending.FAIL:
            pause_s = back_off_s(tracked.failures - 1)
            why = f"{tracked.record.message}; the next try comes after {pause_s} s"
            return _not_before(tracked, now_s + pause_s, why)
        case Ending.REFUSE:
            return _not_before(tracked, now_s + back_off_s(tracked.refusals - 1), tracked.record.message)
        case Ending.REQUEUE:
            return replace(_not_before(tracked, 0, ""), failures=0, refusals=0)
        case _:
            return _not_before(tracked, 0, "")


def succeed(tracked: TrackedWorkload, now_s: int) -> TrackedWorkload:
    return _over(replace(tracked, ending=Ending.NONE), WorkloadState.SUCCEEDED, now_s)


def wait_again(tracked: TrackedWorkload, now_s: int) -> TrackedWorkload:
    expires_s = tracked.workload.expires_s if tracked.workload.expires_s > now_s else 0  # drop an end in the past
    workload = replace(tracked.workload, submitted_s=now_s, not_before_s=0, not_before_why="", expires_s=expires_s)
    record = replace(tracked.record, workload=workload, state=WorkloadState.WAITING, ended_s=0, exit_code=0, message="")
    return TrackedWorkload(record)


def with_state(tracked: TrackedWorkload, pods: Iterable[Pod]) -> TrackedWorkload:
    state = tracked.record.state if tracked.is_over else _living_state(tracked, list(pods))
    if state is tracked.record.state:
        return tracked
    refusals = 0 if state is WorkloadState.RUNNING else tracked.refusals
    return replace(tracked, record=replace(tracked.record, state=state), refusals=refusals)


def begin_to_wait(tracked: TrackedWorkload, now_s: int) -> TrackedWorkload:
    """It may start from now on. What it was held for, or waited for, does not count as its wait for a place."""
    is_free = not (tracked.workload.held or tracked.workload.after)
    return with_workload(tracked, not_before_s=max(tracked.workload.not_before_s, now_s)) if is_free else tracked


def with_workload(tracked: TrackedWorkload, **fields: object) -> TrackedWorkload:
    return replace(tracked, record=replace(tracked.record, workload=replace(tracked.workload, **fields)))


def array_of(workload: Workload) -> str:
    """The array that a task belongs to, in the form that dependencies use: `default/sweep-*`; empty: it is no task."""
    array = workload.labels.get(ARRAY_LABEL)
    return all_tasks(f"{workload.name.partition('/')[0]}/{array}") if array else ""


def simulated_run(record: WorkloadRecord, run: Run, now_s: int) -> Run:
    work_s = record.program.simulated_s or record.workload.estimate_s or SIMULATED_S
    limit_s = record.workload.time_limit_s
    is_cut_short = 0 < limit_s < work_s
    return replace(run, ends_s=now_s + (limit_s if is_cut_short else work_s), is_cut_short=is_cut_short)


def simulated_exit(run: Run) -> Exit:
    return OUT_OF_TIME if run.is_cut_short else Exit()


def successful_run_s(record: WorkloadRecord) -> int:
    """How long it ran, if it succeeded; 0 after several attempts, since the last may have resumed an earlier one."""
    is_meaningful = record.state is WorkloadState.SUCCEEDED and record.attempt == 1
    return max(1, record.ended_s - record.started_s) if is_meaningful else 0


def failure_sentence(workload: Workload, end: Exit, pod: str) -> str:
    if end.reason is ExitReason.TIME_LIMIT:
        return f"stopped at its time limit of {duration(workload.time_limit_s)}"
    if end.message:
        return f"pod {pod}: {end.message}"
    if end.reason is ExitReason.OUT_OF_MEMORY:
        return f"pod {pod} used more than the {memory(request_of(workload, pod).memory_mib)} that it asked for"
    if end.reason is ExitReason.STOPPED:
        return f"pod {pod} was stopped from outside"
    if end.code < 0:
        return f"pod {pod} was ended by {signal_name(-end.code)}"
    return f"pod {pod} ended with exit code {end.code}"


def signal_name(number: int) -> str:
    """`SIGKILL`, or the number of a signal that has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _living_state(tracked: TrackedWorkload, pods: list[Pod]) -> WorkloadState:
    live = [pod for pod in pods if pod.phase is not Phase.DONE]
    if not live:
        return WorkloadState.HELD if tracked.workload.held else WorkloadState.WAITING
    if tracked.ending or all(pod.phase is Phase.RELEASING for pod in live):
        return WorkloadState.STOPPING
    up = [pod.name for pod in pods if pod.phase in (Phase.RUNNING, Phase.DONE)]
    return WorkloadState.STARTING if breaks_gang(tracked.workload, up) else WorkloadState.RUNNING


def _not_before(tracked: TrackedWorkload, at_s: int, why: str) -> TrackedWorkload:
    return with_workload(tracked, not_before_s=at_s, not_before_why=why)


def _over(tracked: TrackedWorkload, state: WorkloadState, now_s: int) -> TrackedWorkload:
    tracked = _not_before(tracked, 0, "") if tracked.workload.not_before_s else tracked
    return replace(tracked, record=replace(tracked.record, state=state, ended_s=now_s))
