"""Defragmentation: moves of running pods that make room for waiting ones, in steps that belong together."""

import msgspec

from kaiwo.model.gpus.gpu import Share


class Move(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One running pod that changes its place. It stops there, and starts again on exactly these devices."""

    workload: str
    pod: str
    source: str  # the node that it leaves
    node: str
    devices: tuple[Share, ...] = ()
    lost_gpu_s: int = 0


class KeptPlace(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """The place of a waiting pod for which a step makes room."""

    workload: str
    pod: str
    node: str
    devices: tuple[Share, ...] = ()


class MoveStep(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Moves that belong together: all of them happen, or none. Then one waiting pod has room."""

    name: str  # unique among all steps that are asked for
    moves: tuple[Move, ...] = ()
    starts: tuple[KeptPlace, ...] = ()
    gained_milli: int = 0  # of GPUs, that the waiting pod gets

    @property
    def lost_gpu_s(self) -> int:
        return sum(move.lost_gpu_s for move in self.moves)


class MovePlan(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What moves would bring, and what they cost. Nothing is kept for it before it runs."""

    steps: tuple[MoveStep, ...] = ()
    capacity_milli: int = 0  # of all usable GPUs
    allocated_milli: int = 0  # before
    movable: int = 0  # running pods that may move
    running: int = 0  # all running pods
    waiting: int = 0  # pods that were looked at
    is_cut_short: bool = False  # the search ended before everything was tried

    @property
    def moves(self) -> int:
        return sum(len(step.moves) for step in self.steps)

    @property
    def gained_milli(self) -> int:
        return sum(step.gained_milli for step in self.steps)

    @property
    def lost_gpu_s(self) -> int:
        return sum(step.lost_gpu_s for step in self.steps)
