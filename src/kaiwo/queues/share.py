"""How the queues stand in a cycle: their fair shares, and what they hold against them.

In:    the view with this cycle's placements.   Out: shares, worked out once a cycle; standings that follow the view.
What a queue wants is what it uses and what waits in it: placing work changes neither, so shares hold for the cycle.
"""

from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.queue import SharePolicy
from kaiwo.queues.fair import FairShares, Wants, fair_shares
from kaiwo.queues.reclaim_rules import Standing, stand
from kaiwo.snapshot.nodes import SIZE, USABLE
from kaiwo.snapshot.queues import Charge
from kaiwo.snapshot.working import Working


def wants_of(view: Working) -> Wants:
    """What there is, and what every queue uses and asks for, as of the cycle's start."""
    found = view.derived.get("wants")
    if found is None:
        gpu_mib = _usual_gpu_mib(view)
        asked = {queue: _charge(amount, gpu_mib) for queue, amount in view.waiting.items()}
        request = view.queues.used + view.queues.summed(asked)
        is_fifo = SharePolicy.FIFO in view.queues.tree.policy
        found = view.derived["wants"] = Wants(view.nodes.totals(), request, view.oldest_s() if is_fifo else None)
    return found


def shares_of(view: Working) -> FairShares:
    """The fair shares of all queues, with every term."""
    found = view.derived.get("shares")
    if found is None:
        found = view.derived["shares"] = fair_shares(view.queues, wants_of(view))
    return found


def standing(view: Working) -> Standing:
    """How the queues stand now: `used` and `fixed` follow the view's placements."""
    found = view.derived.get("standing")
    if found is None:
        found = stand(view.queues, shares_of(view).share, view.queue_used, view.queue_fixed)
        view.derived["standing"] = found
    return found


def _usual_gpu_mib(view: Working) -> int:
    """The memory of an average working device: a waiting memory request has no device yet."""
    usable = view.nodes.gpus[:, USABLE]
    devices = int(usable.sum())
    return max(1, int((view.nodes.gpus[:, SIZE] * usable).sum()) // devices) if devices else 1


def _charge(amount: tuple[int, int, int, int], gpu_mib: int) -> Charge:
    milli, cpu_milli, memory_mib, waiting_gpu_mib = amount
    return milli + waiting_gpu_mib * WHOLE_MILLI // gpu_mib, cpu_milli, memory_mib
