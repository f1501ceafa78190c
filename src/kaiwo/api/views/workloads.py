"""Workloads: their state and details, and why they wait."""

import msgspec

from kaiwo.api.views.cluster import Usage
from kaiwo.model.obstacle import WhyVerdict
from kaiwo.model.workload import Phase
from kaiwo.model.workload_record import WorkloadState


class ObstacleView(msgspec.Struct, frozen=True):
    """One obstacle: the numbers, the sentence, and what would remove it."""

    reason: str
    sentence: str
    remedy: str
    need: int
    have: int
    unit: str
    subject: str


class PodView(msgspec.Struct, frozen=True):
    """One pod and the devices it holds."""

    name: str
    node: str
    phase: Phase
    since_s: int
    devices: list[str]  # "gpu-3", or "gpu-3:500m" for a share


class WorkloadView(msgspec.Struct, frozen=True):
    """One row of the list. `reason`: the first obstacle's sentence while it waits, later how it ended."""

    name: str
    queue: str
    user: str
    kind: str
    state: WorkloadState
    priority: int
    wants: str  # "8 pods x 4 GPUs", "0.5 GPU", "16000 MiB of a GPU"
    gpu_milli: int  # asked for in all; a memory request counts by what it was given
    pods: Usage  # used: placed
    submitted_s: int
    started_s: int
    ended_s: int
    attempt: int
    reason: str
    nodes: list[str]
    labels: dict[str, str]
    planned_s: int = 0  # its planned start, while it waits; 0: it has none


class WorkloadDetail(msgspec.Struct, frozen=True):
    """All details of one workload."""

    summary: WorkloadView
    placed: list[PodView]
    obstacles: list[ObstacleView]
    requests: list[str]  # one sentence a role
    command: list[str]
    image: str
    after: list[str]
    time_limit_s: int
    estimate_s: int
    learned_s: int  # how long runs like it took; 0: too few are known
    retries: int
    preemptible: bool
    exit_code: int
    message: str
    reservation: str = ""  # it runs only on the GPUs of this reservation
    expires_s: int = 0  # its allocation is released then; 0: never
    planned: str = ""  # when and where it is planned to start, and why then
    preemption_delay_s: int = 0  # it waits this long before it may preempt others
    checkpoint_s: int = 0  # its last checkpoint; 0: none was reported
    restart_s: int = 0  # how long it takes after a restart to get back to that checkpoint


class ChangeView(msgspec.Struct, frozen=True):
    """One change that would start the workload now."""

    kind: str  # smaller-size | other-model | other-queue | looser-level | quota | stop-workload
    by: str  # researcher | admin
    sentence: str
    command: str  # what to type; empty when there is no one command for it


class WhyView(msgspec.Struct, frozen=True):
    """Why a workload waits, and what would start it now."""

    workload: str
    state: WorkloadState
    answer: str  # one sentence, first
    obstacles: list[ObstacleView]
    position: int  # in its queue, from 1; 0 when it does not wait
    ahead: int  # workloads tried before it
    change: ChangeView | None
    no_change: str  # what was found instead, in full sentences, when there is no change to propose
    as_of_s: int
    partitions: str = ""  # what the partition planner does for it, when that matters
    planned: str = ""  # when and where it is planned to start, and why then
    verdict: WhyVerdict | None = None  # what the search for a change found; None: an older server
    searched_all: bool = True  # False: not every possible change was tried


class AttemptView(msgspec.Struct, frozen=True):
    """One start of a pod."""

    attempt: int  # the first is 1
    is_over: bool


class AttemptsView(msgspec.Struct, frozen=True):
    """The attempts whose logs are kept, the first one first, and the workload's state."""

    attempts: list[AttemptView]
    state: WorkloadState


class ConsoleView(msgspec.Struct, frozen=True):
    """Whether it reads from a terminal, and the folder on the server with the socket for that."""

    is_interactive: bool
    folder: str  # empty: not now
