"""Who has started by the time a workload starts: those of its queue that stand before it and ask for no more.

In:    a Question.   Out: what they need, so many pods of each kind.
They have their turn first, and wherever the workload itself finds room and is let by the limits, so do they. So what
is too little for all of them together does not start the workload: that rules out changes without a trial.
"""

from msgspec.structs import replace

from kaiwo.explain.trial import Question
from kaiwo.model.request import Request
from kaiwo.snapshot.backlog import WaitingClass

MOST_KINDS = 16  # each is looked for on all nodes, which takes a tenth of a millisecond

Sooner = tuple[Request, int]  # a kind of pod, and how many of it start before


def sooner(question: Question) -> list[Sooner]:
    """Those who need most GPUs first; empty where others may go before whoever stands before them."""
    picture, backlog, view = question.picture, question.picture.backlog, question.view
    mine, place = backlog.stand_of(question.name)
    row = view.queues.row.get(mine.queue)
    is_in_order = not (picture.leaving or picture.promises or backlog.resumed or question.active.free_filters)
    if row is None or view.queues.is_model_bounded[row] or not is_in_order or not _is_plain(mine):
        return []
    (shape, _, pods), found = mine.needs[0], []
    for other in backlog.by_queue[mine.queue].values():
        if other is mine or not _is_plain(other) or other.signature[1] != mine.signature[1]:
            continue
        want, needed = backlog.shapes[other.needs[0][0]], other.needs[0][2]
        if needed <= pods and _asks_no_more(want, backlog.shapes[shape]):
            ahead = other.line.position(place)
            found += [(want, needed * ahead)] if ahead else []
    return sorted(found, key=lambda each: -each[0].charge_milli * each[1])[:MOST_KINDS]


def _is_plain(found: WaitingClass) -> bool:
    """Equal pods that must start together, for which no space is kept."""
    return len(found.needs) == 1 and found.needs[0][2] > 0 and not found.signature[2] and found.choices is None


def _asks_no_more(one: Request, other: Request) -> bool:
    """A node that takes a pod of the other takes one of this, too; and counting tells how many."""
    is_counted = not one.hangs_on_device and (one.is_exclusive or one.gpus <= 1) and one.neighbours is None
    return (
        is_counted
        and one.cpu_milli <= other.cpu_milli
        and one.memory_mib <= other.memory_mib
        and one.gpus <= other.gpus
        and one.gpu_milli <= other.gpu_milli
        and _kind(one) == _kind(other)
    )


def _kind(want: Request) -> Request:
    """All but the amounts."""
    return replace(want, cpu_milli=0, memory_mib=0, gpus=min(want.gpus, 1), gpu_milli=1000 if want.is_whole else 500)
