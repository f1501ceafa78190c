"""The record of a workload that Kaiwo itself runs: its program, state, attempts and result."""

import enum

import msgspec

from kaiwo.model.workload import Workload


class Program(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A command runs as a real local process; work without one takes simulated time."""

    command: tuple[str, ...] = ()
    image: str = ""
    env: dict[str, str] = {}
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
