"""The record of a workload that Kaiwo itself runs: its program, state, attempts and result."""

import enum

import msgspec

from kaiwo.model.gpus.gpu import Share
from kaiwo.model.workload import Workload


class Program(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A command runs as a real local process; work without one takes simulated time."""

    command: tuple[str, ...] = ()
    image: str = ""
    env: dict[str, str] = {}
    secret_env: dict[str, str] = {}  # values that are secret: stored sealed, and opened only for the process itself
    workdir: str = ""  # empty: the run's own folder
    simulated_s: int = 0  # run time of work without a command; 0: its estimate, or 10 minutes
    retries: int = 0  # how often it is started again after a failure
    is_interactive: bool = False  # a terminal is attached to its input: it is never restarted


class WorkloadState(enum.StrEnum):
    """Where a workload is in its life."""

    WAITING = "waiting"
    HELD = "held"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """It will not run again unless it is requeued."""
        return self in (WorkloadState.SUCCEEDED, WorkloadState.FAILED, WorkloadState.CANCELLED)


class PodPlacement(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Where a pod ran."""

    pod: str
    node: str
    devices: tuple[Share, ...] = ()


class AttemptRecord(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One attempt of a workload, kept after its end: where its pods ran, and how it ended."""

    number: int  # the first is 1
    started_s: int
    ended_s: int = 0  # 0: it still runs
    exit_code: int = 0
    message: str = ""  # why it ended, or who stopped some of its pods; empty: by itself, without a failure
    pods: tuple[PodPlacement, ...] = ()
    peak_mib: int = 0  # the most memory that one of its pods used; 0: not known


class WorkloadRecord(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    workload: Workload
    program: Program = Program()
    state: WorkloadState = WorkloadState.WAITING
    attempt: int = 0  # how many times it has been started
    started_s: int = 0  # of the last attempt
    ended_s: int = 0
    exit_code: int = 0  # of the first pod that failed; a signal's number is negative
    message: str = ""  # why it ended, in one sentence
    version: int = 0  # the store's resource version
    submission: int = 1  # how often its name has been submitted, with this one
