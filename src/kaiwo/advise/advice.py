"""A piece of advice: one change of the cluster or of a request, what it would bring, and how that was found out."""

import enum

import msgspec

from kaiwo.advise.right_size import Resized
from kaiwo.model.defragmentation import Move


class AdviceKind(enum.StrEnum):
    RIGHT_SIZE = "right-size"  # ask for what is used
    QUOTA = "quota"  # a quota that its queue does not use serves one that waits
    MOVE = "move"  # one or two moves make room
    DEFRAGMENT = "defragment"  # several moves make room for several
    REPARTITION = "repartition"  # an empty node in the mode that waiting work asks for


class SizeChange(msgspec.Struct, frozen=True, tag="right-size"):
    """For the next runs of one kind of work."""

    user: str
    queue: str
    name: str  # of its runs, without their numbers
    image: str
    waiting: tuple[str, ...]  # workloads of this kind that could be changed now
    reasons: tuple[Resized, ...]


class QuotaChange(msgspec.Struct, frozen=True, tag="quota"):
    """Both queues have the same parent, and the limits of both hold."""

    queue: str
    donor: str
    quota_milli: tuple[int, int]  # of the queue, before and after
    donor_quota_milli: tuple[int, int]


class Moves(msgspec.Struct, frozen=True, tag="moves"):
    moves: tuple[Move, ...]
    starts: tuple[str, ...]  # workloads for which they make room
    workload: str = ""  # room for this one alone was asked for
    stranded_milli: tuple[int, int] = (0, 0)  # free GPU amounts that no request of the mix can use: before and after
    lost_gpu_s: int = 0


class NodeMode(msgspec.Struct, frozen=True, tag="repartition"):
    node: str
    mode: str


Change = SizeChange | QuotaChange | Moves | NodeMode


class Outlook(msgspec.Struct, frozen=True):
    """What a forward run finds: of the work that waits now, and of what arrives."""

    waiting: int
    started: int  # of these
    wait_s: int  # of all of these together, from now on; what does not start waits until the end of the run
    started_now: int  # within a minute
    held_gpu_s: int
    evictions: int


class Gain(msgspec.Struct, frozen=True):
    """The same time to come, without and with the change."""

    before: Outlook
    after: Outlook
    sooner: int  # workloads that start sooner
    later: int  # workloads that start later
    until_s: int  # how far both runs went
    unknown: int = 0  # workloads whose run time nobody knows: they never end here

    @property
    def saved_wait_s(self) -> int:
        return self.before.wait_s - self.after.wait_s

    @property
    def saved_gpu_s(self) -> int:
        return self.before.held_gpu_s - self.after.held_gpu_s


class Advice(msgspec.Struct, frozen=True):
    kind: AdviceKind
    subject: str  # a queue, a node, a workload, or a kind of work
    change: Change
    gain: Gain


class AdviceAnswer(msgspec.Struct, frozen=True):
    advice: tuple[Advice, ...] = ()  # the largest gain first
    tried: int = 0  # changes that were run forward
    refused: int = 0  # of these, changes without a gain
    is_whole: bool = True  # False: the time for it ended before everything was tried
