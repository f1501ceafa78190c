"""Place pods that their queue can pay for.

In:    a shape, how many, and who pays.   Out: their places, charged; or None with nothing changed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kaiwo.decide.limits import headroom, models_with_room, within_limits
from kaiwo.decide.place import Placed, Placer
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.snapshot.queues import Charge
from kaiwo.snapshot.working import Working


class Payer(NamedTuple):
    """The queue that pays for pods, and by which rules."""

    queue: int
    is_fixed: bool  # its work may not be preempted
    has_limits: bool = True  # else only the nodes are asked about

    def pays(self, working: Working, charge: Charge) -> bool:
        """Charge the queue, if its limits allow."""
        if self.has_limits and not within_limits(working, self.queue, charge, self.is_fixed):
            return False
        working.charge(self.queue, charge, self.is_fixed)
        return True


def place_pods(
    working: Working, placer: Placer, payer: Payer, shape: int, want: Request, count: int
) -> list[Placed] | None:
    """So many pods of one shape, paid for by their queue; None with nothing changed when they do not all fit."""
    if want.gpus and payer.has_limits and working.queues.is_model_bounded[payer.queue]:
        return _place_by_model(working, placer, payer, shape, want, count)
    with working.trial() as attempt:
        placed = placer.place(shape, want, count)
        if len(placed) < count:
            return None
        if payer.pays(working, paid_for(working, want, placed)):
            attempt.keep()
            return placed
    if not want.is_memory or want.device_mib:
        return None
    # The larger a device, the fewer milli of it the same memory is: larger ones may stay within the limit.
    milli = max(0, headroom(working, payer.queue)) // (count * want.gpus)
    larger = msgspec.structs.replace(want, device_mib=want.gpu_mib * WHOLE_MILLI // (milli + 1) + 1)
    return place_pods(working, placer, payer, -1, larger, count)


def _place_by_model(
    working: Working, placer: Placer, payer: Payer, shape: int, want: Request, count: int
) -> list[Placed] | None:
    """One pod after the other, each on a GPU model of which its queue may still take as much."""
    placed: list[Placed] = []
    with working.trial() as attempt:
        while len(placed) < count:
            found = _place_one(working, placer, payer, shape, want)
            if found is None:
                return None
            placed.append(found)
        attempt.keep()
    return placed


def _place_one(working: Working, placer: Placer, payer: Payer, shape: int, want: Request) -> Placed | None:
    """Where a model turns out too dear (memory is a larger part of a smaller device), another one is looked for."""
    asked = set(want.gpu_models or working.nodes.models)
    left = asked & set(models_with_room(working, payer.queue, payer.is_fixed, max(1, want.charge_milli)))
    while left:
        narrowed = want if left == asked else msgspec.structs.replace(want, gpu_models=tuple(sorted(left)))
        with working.trial() as attempt:
            found = placer.place(shape if narrowed is want else -1, narrowed, 1)
            if not found:
                return None
            if payer.pays(working, paid_for(working, want, found)):
                attempt.keep()
                return found[0]
        left -= {gpu.model for gpu in working.nodes.nodes[working.nodes.row[found[0].node]].gpus}
    return None


def paid_for(working: Working, want: Request, placed: Sequence[Placed]) -> Charge:
    """What a queue pays for pods that have their places, by GPU model, too, where some queue bounds one."""
    charge = (sum(each.milli for each in placed), want.cpu_milli * len(placed), want.memory_mib * len(placed))
    if not working.queues.models:
        return charge
    models = [working.milli_by_model(each.node, each.devices) for each in placed]
    return (*charge, *(sum(column) for column in zip(*models, strict=True)))
