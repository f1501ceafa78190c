"""The life of a workload as values: what one happening makes of it.

In:    a Life and what happened to it.   Out: the next Life.
Never: reads a clock, touches a store, or tells anybody.
"""

import enum
import signal
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.plan_checks import STILL_STOPPING, back_off_s
from kaiwo.manifests.values.names import ARRAY_LABEL
from kaiwo.model.workload import Phase, Pod, Workload, breaks_gang
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState

SIMULATED_S = 600  # how long work without a command takes when nobody says
STILL_STOPPING_S = 86_400  # "not before" while pods are going; taken back when the last one is gone


class Ending(enum.StrEnum):
    """What becomes of a workload when the last of its stopping pods is gone."""

    NONE = ""
    CANCEL = "cancel"
    FAIL = "fail"
    REQUEUE = "requeue"
    EVICT = "evict"
    REFUSE = "refuse"


class ExitReason(enum.StrEnum):
    """How a run came to its end."""

    EXITED = "exited"  # by itself
    STOPPED = "stopped"  # because it was told to
    TIME_LIMIT = "time-limit"
    LOST = "lost"  # nobody saw its end
    NEVER_STARTED = "never-started"


class Exit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a run. A signal's number is negative, as in a Record."""

    code: int = 0
    reason: ExitReason = ExitReason.EXITED
    message: str = ""

    @property
    def is_success(self) -> bool:
        """The run did what it was for."""
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


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod that holds a place, and the run that fills it."""

    pod: Pod
    run: Run


class Life(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A record, and what the record does not say."""

    record: WorkloadRecord
    failures: int = 0  # attempts that count against the retries
    refusals: int = 0  # starts refused in a row
    ending: Ending = Ending.NONE

    @property
    def workload(self) -> Workload:
        """What was asked for."""
        return self.record.workload

    @property
    def is_over(self) -> bool:
        """It will not run again by itself."""
        return self.record.state.is_over

    @property
    def needs_queue(self) -> bool:
        """It may run again in its queue: it has not ended, and nobody cancelled it."""
        return not self.is_over and self.ending is not Ending.CANCEL and not self.is_interrupted

    @property
    def is_interrupted(self) -> bool:
        """It is stopped for others, and cannot go on later: nobody would sit at its input again."""
        return self.ending is Ending.EVICT and self.record.program.is_interactive

    @property
    def wants_pods(self) -> bool:
        """The scheduler still has something to do for it, now or when its pods are gone."""
        return self.needs_queue and (self.ending is not Ending.FAIL or self.failures <= self.record.program.retries)


def new_life(record: WorkloadRecord) -> Life:
    """A workload as it is submitted."""
    return Life(replace(record, state=WorkloadState.HELD if record.workload.held else WorkloadState.WAITING))


def begin_attempt(life: Life, now_s: int) -> Life:
    """Its pods were given places."""
    record = replace(life.record, attempt=life.record.attempt + 1, started_s=now_s, ended_s=0, exit_code=0, message="")
    return replace(life, record=record)


def refuse(life: Life, now_s: int, why: str) -> Life:
    """A start that could not be carried out: wait longer each time."""
    life = replace(life, record=replace(life.record, message=why), refusals=life.refusals + 1, ending=Ending.REFUSE)
    return end(life, now_s)


def fail(life: Life, end: Exit, pod: str, now_s: int) -> Life:
    """One of its pods failed, and with it the attempt. The other pods must go before the next one."""
    record = replace(life.record, exit_code=end.code, message=failure_sentence(life.workload, end, pod))
    life = replace(life, record=record, failures=life.failures + 1, ending=Ending.FAIL)
    return _not_before(life, now_s + STILL_STOPPING_S, STILL_STOPPING)


def stop_all(life: Life, ending: Ending, now_s: int, message: str = "") -> Life:
    """All its pods are told to go. A reason that is already there stays, except that people's wishes come first."""
    if life.ending and ending not in (Ending.CANCEL, Ending.REQUEUE):
        return life
    record = replace(life.record, message=message or life.record.message)
    life = replace(life, record=record, ending=ending, refusals=life.refusals + (ending is Ending.REFUSE))
    return life if ending is Ending.CANCEL else _not_before(life, now_s + STILL_STOPPING_S, STILL_STOPPING)


def end(life: Life, now_s: int) -> Life:
    """The last of its stopping pods is gone."""
    ending, is_interrupted = life.ending, life.is_interrupted
    life = replace(life, ending=Ending.NONE)
    match ending:
        case Ending.CANCEL:
            return _over(life, WorkloadState.CANCELLED, now_s)
        case Ending.EVICT if is_interrupted:
            record = replace(life.record, exit_code=-signal.SIGTERM)
            return _over(replace(life, record=record), WorkloadState.FAILED, now_s)
        case Ending.FAIL if life.failures > life.record.program.retries:
            return _over(life, WorkloadState.FAILED, now_s)
        case Ending.FAIL:
            pause_s = back_off_s(life.failures - 1)
            return _not_before(life, now_s + pause_s, f"{life.record.message}; the next try comes after {pause_s} s")
        case Ending.REFUSE:
            return _not_before(life, now_s + back_off_s(life.refusals - 1), life.record.message)
        case Ending.REQUEUE:
            return replace(_not_before(life, 0, ""), failures=0, refusals=0)
        case _:
            return _not_before(life, 0, "")


def succeed(life: Life, now_s: int) -> Life:
    """Every pod is done."""
    return _over(replace(life, ending=Ending.NONE), WorkloadState.SUCCEEDED, now_s)


def wait_again(life: Life, now_s: int) -> Life:
    """Somebody wants an ended workload once more, with fresh retries."""
    expires_s = life.workload.expires_s if life.workload.expires_s > now_s else 0  # one that has passed is gone
    workload = replace(life.workload, submitted_s=now_s, not_before_s=0, not_before_why="", expires_s=expires_s)
    record = replace(life.record, workload=workload, state=WorkloadState.WAITING, ended_s=0, exit_code=0, message="")
    return Life(record)


def with_state(life: Life, pods: Iterable[Pod]) -> Life:
    """The state that follows from its pods."""
    state = life.record.state if life.is_over else _living_state(life, list(pods))
    if state is life.record.state:
        return life
    refusals = 0 if state is WorkloadState.RUNNING else life.refusals
    return replace(life, record=replace(life.record, state=state), refusals=refusals)


def with_workload(life: Life, **fields: object) -> Life:
    """Other wishes, the same life."""
    return replace(life, record=replace(life.record, workload=replace(life.workload, **fields)))


def array_of(workload: Workload) -> str:
    """The array it is a task of, as those who wait for all its tasks name it: `default/sweep-*`; empty: of none."""
    array = workload.labels.get(ARRAY_LABEL)
    return all_tasks(f"{workload.name.partition('/')[0]}/{array}") if array else ""


def all_tasks(array: str) -> str:
    """All tasks of `default/sweep`. No workload can have such a name."""
    return f"{array}-*"


def simulated_run(record: WorkloadRecord, run: Run, now_s: int) -> Run:
    """When a run without a process ends, and how."""
    work_s = record.program.simulated_s or record.workload.estimate_s or SIMULATED_S
    limit_s = record.workload.time_limit_s
    is_cut_short = 0 < limit_s < work_s
    return replace(run, ends_s=now_s + (limit_s if is_cut_short else work_s), is_cut_short=is_cut_short)


def simulated_exit(run: Run) -> Exit:
    """The end of a run without a process."""
    return OUT_OF_TIME if run.is_cut_short else Exit()


def run_of(record: WorkloadRecord) -> int:
    """How long it ran, if it did what it was for. Of several attempts the last may have gone on where another was."""
    is_telling = record.state is WorkloadState.SUCCEEDED and record.attempt == 1
    return max(1, record.ended_s - record.started_s) if is_telling else 0


def failure_sentence(workload: Workload, end: Exit, pod: str) -> str:
    """Why a pod's end is a failure, for people."""
    if end.reason is ExitReason.TIME_LIMIT:
        return f"stopped at its time limit of {duration_words(workload.time_limit_s)}"
    if end.message:
        return f"pod {pod}: {end.message}"
    if end.reason is ExitReason.STOPPED:
        return f"pod {pod} was stopped from outside"
    if end.code < 0:
        return f"pod {pod} was ended by {signal_name(-end.code)}"
    return f"pod {pod} ended with exit code {end.code}"


def duration_words(seconds: int) -> str:
    """`2 h 30 min`, `45 s`."""
    parts = ((seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s"))
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount) or "0 s"


def signal_name(number: int) -> str:
    """`SIGKILL`, or the number of a signal that has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _living_state(life: Life, pods: list[Pod]) -> WorkloadState:
    live = [pod for pod in pods if pod.phase is not Phase.DONE]
    if not live:
        return WorkloadState.HELD if life.workload.held else WorkloadState.WAITING
    if life.ending or all(pod.phase is Phase.RELEASING for pod in live):
        return WorkloadState.STOPPING
    up = [pod.name for pod in pods if pod.phase in (Phase.RUNNING, Phase.DONE)]
    return WorkloadState.STARTING if breaks_gang(life.workload, up) else WorkloadState.RUNNING


def _not_before(life: Life, at_s: int, why: str) -> Life:
    return with_workload(life, not_before_s=at_s, not_before_why=why)


def _over(life: Life, state: WorkloadState, now_s: int) -> Life:
    life = _not_before(life, 0, "") if life.workload.not_before_s else life
    return replace(life, record=replace(life.record, state=state, ended_s=now_s))
