"""Workloads, why they wait, their attempts, and what is done to several at once."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kaiwo.api.views.answers import Problem
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
    rank: int = -1  # among the pods of its workload, near ones next to each other; -1: it has none


class ArrayView(msgspec.Struct, frozen=True):
    """The tasks of an array that match."""

    tasks: int
    indices: str  # "0-9999"
    states: dict[str, int]  # how many are in each state


class WorkloadView(msgspec.Struct, frozen=True):
    """One row of the list. `reason`: the first obstacle's sentence while it waits, later how it ended.

    The name of a folded array ends in `-*`. Its state is that of its liveliest task.
    """

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
    array: ArrayView | None = None  # it stands for the tasks of an array
    expected_s: int = 0  # when it is expected to start, while it waits without a planned start; 0: unknown
    expected_low_s: int = 0  # four of five times not before this
    expected_high_s: int = 0  # and not after this; 0: unknown


class WorkloadCountsView(msgspec.Struct, frozen=True):
    """How many workloads of a query are in each state."""

    states: dict[str, int]


class PastAttemptView(msgspec.Struct, frozen=True):
    """One attempt of a workload: where it ran, and how it ended."""

    attempt: int  # the first is 1
    started_s: int
    ended_s: int  # 0: it still runs
    exit_code: int
    message: str  # why it ended, or who stopped it
    nodes: list[str]
    devices: list[str]  # node/device; a share as node/device:500m
    peak_mib: int = 0  # the most memory that one of its pods used; 0: not known


class DomainChoiceView(msgspec.Struct, frozen=True):
    """The domain of the network that was chosen for a workload or a part of it, and what spoke for it."""

    part: str  # a sub-group, a role, or a segment of a role; empty: the whole workload
    topology: str
    level: str  # empty: no single domain had room
    domain: str
    strategy: str
    score: int  # the weighted terms; each is from 0 to 1000
    availability: int
    alignment: int
    utilisation: int
    performance: int
    sentence: str


class WorkloadDetail(msgspec.Struct, frozen=True):
    """All details of one workload."""

    summary: WorkloadView
    placed: list[PodView]
    obstacles: list[ObstacleView]
    requests: list[str]  # one sentence for each role
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
    submission: int = 1  # how often its name has been submitted, with this one
    submissions: list[int] = []  # the submissions of its name that are kept, the first one first
    attempts: list[PastAttemptView] = []  # the attempts that are kept, the first one first
    incomplete: str = ""  # a gang below its minimum: what runs, and when that is stopped
    kept_places: str = ""  # places that are kept for the replacements of its lost pods
    asked_priority: int | None = None  # where less counts: the priority that it asks for
    capped_priority: str = ""  # why less counts
    topology: str = ""  # whose levels the next fields name; empty: the first that has them
    required_level: str = ""  # all its pods run in one domain of this level
    preferred_level: str = ""  # the same if one has room
    placement_strategy: str = ""  # how its pods are placed on these levels; empty: as the policy says
    segment_size: int = 0  # this many pods share one domain of the segment level; 0: it has no segments
    segment_level: str = ""
    bandwidth_mb_s: int = 0  # what each pod must be able to send to the others; 0: whatever there is
    roles_level: str = ""  # all its roles run in one domain of this level, and each by itself in those above
    rank_order: bool = False  # its pods have ranks although it states no level
    strategy: str = ""  # how its nodes and GPUs are chosen; empty: as its queue or the policy says
    domains: list[DomainChoiceView] = []  # of the network, where its pods were placed
    progress: str = ""  # what it last reported about its speed
    memory_promise: str = ""  # why its --memory is a promise and not a limit; empty: it is a limit, or not given
    hidden: str = ""  # what is not shown to you, and why; empty: you see everything
    may_change: bool = False  # whoever asks may change it here: see `may_do` and `changeable`
    may_do: list[str] = []  # cancel | hold | release | requeue: what of it this cluster lets them do
    changeable: list[str] = []  # the fields that they may set now, as `POST /workloads/set` names them
    secret_env: list[str] = []  # names of its variables whose values are secret


class ChangeView(msgspec.Struct, frozen=True):
    """One change that would start the workload now."""

    kind: str  # share-with-anyone | smaller-size | other-model | other-queue | looser-level | quota | stop-workload
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
    capped_priority: str = ""  # why less counts than the priority that it asks for
    expected: str = ""  # when it is expected to start, with a range; empty: unknown, or its start is planned
    expected_s: int = 0  # the same as a time
    expected_low_s: int = 0
    expected_high_s: int = 0  # 0: unknown
    ended_before: str = ""  # it ran before: how that ended, or who stopped it for whom
    protected: str = ""  # it runs: how much less it takes from other requests there than on the fullest node


class AttemptView(msgspec.Struct, frozen=True):
    """One start of a pod."""

    attempt: int  # the first is 1
    is_over: bool


class AttemptsView(msgspec.Struct, frozen=True):
    """The attempts whose logs are kept, the first one first, and the workload's state."""

    attempts: list[AttemptView]
    state: WorkloadState
    pods: list[str] = []  # all its pods; each has its own log


class ConsoleView(msgspec.Struct, frozen=True):
    """Whether it reads from a terminal, and the folder on the server with the socket for that."""

    is_interactive: bool
    folder: str  # empty: not now


MAX_NAMES = 1000  # in one request: they are one change, and others wait for it


class NamesForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The workloads to act on, as `namespace/name`."""

    names: Annotated[list[str], Meta(min_length=1, max_length=MAX_NAMES)]


class SetForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Workloads, and what to change of each, in the words of the submission form; null clears a setting."""

    names: Annotated[list[str], Meta(min_length=1, max_length=MAX_NAMES)]
    fields: dict[str, Any]


class ActionResult(msgspec.Struct, frozen=True):
    """The result for one workload: what was done, or why not."""

    name: str
    done: str  # empty: nothing
    problem: Problem | None = None


class BulkOutcome(msgspec.Struct, frozen=True):
    """One result for each name, in their order; a duplicate name has one."""

    results: list[ActionResult]
    warnings: list[str] = []


class ProgressForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How fast a workload is, or one of its pods."""

    pod: Annotated[str, Meta(description="One of its pods; all of them together when left out")] = ""
    step: Annotated[str | float, Meta(description='How long a step took: "2.1s", "350ms", or seconds')] = ""
    expected: Annotated[
        str | float, Meta(description="How long a step should take; its fastest step so far when left out")
    ] = ""
    bandwidth: Annotated[str, Meta(description='What each GPU sent in collectives (bus bandwidth): "180GB/s"')] = ""
    steps: Annotated[int | str, Meta(description="Steps done so far")] = 0


class CheckpointForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a workload saved its work."""

    at: Annotated[
        str | int, Meta(description='"2026-01-31T18:00:00Z", or whole seconds since 1970; now when left out')
    ] = ""
