"""Defragmentation: moves of running pods, in steps that belong together; the run that makes them; and how far it is."""

import enum
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from kaiwo.model.gpus.gpu import Share


class GoalKind(enum.StrEnum):
    WAITING = "waiting"  # room for as much waiting work as possible
    WORKLOAD = "workload"  # room for one workload
    NODES = "nodes"  # nodes without work, which may go
    BALANCE = "balance"  # the load of the nodes evened out


class DefragmentationGoal(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    kind: GoalKind = GoalKind.WAITING
    workload: str = ""  # that gets room
    nodes: int = 0  # how many are to be free, with those that are free already
    most_moves: int = 0  # 0: as many as the kind of goal allows


class KeptReason(enum.StrEnum):
    """Why running work is not moved."""

    NOT_PREEMPTIBLE = "not-preemptible"
    DISRUPTION_BUDGET = "disruption-budget"
    NOT_REPLACED = "not-replaced"  # nothing makes a pod anew once it is evicted
    PROTECTED = "protected"  # by a minimum run time, because it ends soon, or by a plugin
    OVERDUE = "overdue"  # it waited too long before it started
    RECOVERING = "recovering"
    IN_TRANSIT = "in-transit"  # a place is kept for it, or it is stopping
    RESERVATION = "reservation"  # it runs on reserved GPUs
    BANDWIDTH = "bandwidth"  # asked bandwidth depends on all its places together
    RULES = "rules"  # about neighbours, partitions, memory or isolation: this search does not know them


class KeptWork(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    workload: str
    reason: KeptReason
    gpu_milli: int = 0


class Move(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One running pod that changes its place. It stops there, and starts again on exactly these devices."""

    workload: str
    pod: str
    source: str  # the node that it leaves
    node: str
    devices: tuple[Share, ...] = ()
    lost_gpu_s: int = 0
    made_by: str = ""  # see `Workload`: the pod that starts on the new place is another workload
    cpu_milli: int = 0  # what is kept for that one
    memory_mib: int = 0


class KeptPlace(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """The place of a waiting pod for which a step makes room."""

    workload: str
    pod: str
    node: str
    devices: tuple[Share, ...] = ()


class MoveStep(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Moves that belong together. Once all of them are made, its waiting pods have room or its node is free."""

    name: str  # unique among all steps that are asked for
    moves: tuple[Move, ...] = ()
    starts: tuple[KeptPlace, ...] = ()
    gained_milli: int = 0  # of GPUs, that the waiting pods get
    frees: str = ""  # the node that has no work afterwards

    @property
    def lost_gpu_s(self) -> int:
        return sum(move.lost_gpu_s for move in self.moves)

    @property
    def beneficiary(self) -> str:
        return self.starts[0].workload if self.starts else ""


class MovePlan(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What moves would bring, and what they cost. Nothing is kept for it before it runs."""

    steps: tuple[MoveStep, ...] = ()
    capacity_milli: int = 0  # of all usable GPUs
    allocated_milli: int = 0  # before
    movable: int = 0  # running pods that may move
    running: int = 0  # all running pods
    waiting: int = 0  # pods that were looked at
    planned: int = 0  # waiting workloads that were not, because they have a planned start
    is_cut_short: bool = False  # the search ended before everything was tried
    goal: DefragmentationGoal = DefragmentationGoal()
    kept: tuple[KeptWork, ...] = ()  # running work that is not moved, because
    free_nodes: tuple[str, ...] = ()  # that have no work before
    load_gap_ppm: tuple[int, int] = (0, 0)  # the highest load of a node less the mean, before and after
    is_smallest: bool = False  # no fewer moves would do: everything smaller was tried
    is_too_little_free: bool = False  # in the whole cluster, so no moves make room
    too_many: int = 0  # moves that would make room, where fewer may be made

    @property
    def moves(self) -> int:
        return sum(len(step.moves) for step in self.steps)

    @property
    def gained_milli(self) -> int:
        return sum(step.gained_milli for step in self.steps)

    @property
    def lost_gpu_s(self) -> int:
        return sum(step.lost_gpu_s for step in self.steps)


class MoveState(enum.StrEnum):
    WAITING = "waiting"
    MOVING = "moving"  # its pod was told to stop, and a place is kept for it
    MOVED = "moved"
    ENDED = "ended"  # the work ended, or left its place in another way: nothing is left to move
    UNPLACED = "unplaced"  # it stopped, and its new place was lost: it waits like other work
    KEPT = "kept"  # it was not moved


class SkipReason(enum.StrEnum):
    """Why a step, or what is left of it, was not made."""

    NONE = ""
    NOT_NEEDED = "not-needed"  # who was to get the room has gone or started
    NO_ROOM = "no-room"  # its places are used by others by now
    PROTECTED = "protected"  # a pod of it may not be stopped now
    REFUSED = "refused"  # the cluster did not evict a pod of it
    TOO_MANY_AT_ONCE = "too-many-at-once"  # its pods change places with each other: more at once than the policy allows
    ABORTED = "aborted"


class MoveProgress(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    state: MoveState = MoveState.WAITING
    since_s: int = 0  # when it was begun; of one that was refused: when it was refused last
    until_s: int = 0  # when it ended
    tries: int = 0  # how often the cluster refused it
    heir: str = ""  # the workload that the same controller made instead

    @property
    def is_over(self) -> bool:
        return self.state not in (MoveState.WAITING, MoveState.MOVING)


class StepProgress(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """How far one step of a run is."""

    run: str
    number: int  # of the step, from 0
    moves: tuple[MoveProgress, ...]  # in the order of the step
    is_freed: bool = False  # its waiting pods have their places
    reason: SkipReason = SkipReason.NONE

    @property
    def is_over(self) -> bool:
        return all(move.is_over for move in self.moves)

    @property
    def has_begun(self) -> bool:
        return any(move.since_s for move in self.moves)


class RunState(enum.StrEnum):
    RUNNING = "running"
    ABORTING = "aborting"  # no more moves begin; those that were begun end
    DONE = "done"
    ABORTED = "aborted"


class DefragmentationRun(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A plan that is being carried out. There is at most one that is not over."""

    name: str
    goal: DefragmentationGoal
    steps: tuple[MoveStep, ...]
    by: str = ""  # who asked for it
    begun_s: int = 0
    ended_s: int = 0
    state: RunState = RunState.RUNNING
    recent_s: tuple[int, ...] = ()  # when earlier runs began moves, within the hour before

    @property
    def is_over(self) -> bool:
        return self.state in (RunState.DONE, RunState.ABORTED)

    def ended(self, now_s: int) -> "DefragmentationRun":
        state = RunState.ABORTED if self.state is RunState.ABORTING else RunState.DONE
        return self if self.is_over else replace(self, state=state, ended_s=now_s)


def first_progress(run: DefragmentationRun, number: int) -> StepProgress:
    return StepProgress(run.name, number, tuple(MoveProgress() for _ in run.steps[number].moves))


def begun_s(progress: Sequence[StepProgress]) -> list[int]:
    """When moves were begun, the first one first."""
    return sorted(move.since_s for step in progress for move in step.moves if move.since_s)
