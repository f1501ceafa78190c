"""How many pods of one shape the nodes would take if nothing ran on them: whether waiting can ever help a gang.

In:    the view and a request.   Out: never fewer pods than would fit.
"""

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.offers import Offer, offer_in
from kaiwo.decide.shortage import NEVER
from kaiwo.gpus.fit import named_devices
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.snapshot.arrays import BoolArray, IntArray
from kaiwo.snapshot.working import Working

BARRED = "the nodes that it may use are too few"
HELD_BACK = "reservations leave it too little"
UNCOUNTED = 1 << 40  # pods of a shape that takes no whole devices


def most_when_empty(view: Working, want: Request, allowed: BoolArray, offer: Offer) -> dict[str, int]:
    """What bounds the pods, and how many it leaves: the GPUs of the whole cluster, the nodes that the filters allow,
    and what is reserved."""
    freely = unreserved(view, want)
    free_offer = offer_in(view, freely, np.arange(len(view.nodes.names))) if freely != want else offer
    whole = int((free_offer.devices // want.gpus).sum()) if want.gpus and want.is_exclusive else UNCOUNTED
    barred = int(pods_when_empty(view, freely, free_offer)[allowed].sum())
    held_back = int(pods_when_empty(view, want, offer)[allowed].sum()) if freely != want else barred
    return {NEVER: whole, BARRED: barred, HELD_BACK: held_back}


def unreserved(view: Working, want: Request) -> Request:
    """The same request, if it might use whatever is reserved."""
    if view.reserved is None and not want.reservation:
        return want
    names = [claim.name for claim in view.reserved.claims] if view.reserved is not None else []
    return replace(want, passes=tuple(names), holds_s=0, reservation="")


def pods_when_empty(view: Working, want: Request, offer: Offer) -> IntArray:
    """Per node, by its pod slots, CPU, memory, extended resources and GPUs, in what is not reserved for others."""
    nodes = view.nodes
    pods = np.array([node.pods for node in nodes.nodes], np.int64)
    for name, amount in want.extended:
        if amount:
            pods = np.minimum(pods, [node.extended.get(name, 0) // amount for node in nodes.nodes])
    if want.cpu_milli:
        pods = np.minimum(pods, nodes.cpu_size // want.cpu_milli)
    if want.memory_mib:
        pods = np.minimum(pods, nodes.memory_size // want.memory_mib)
    if want.gpus:
        each = 1 if want.is_exclusive else WHOLE_MILLI // want.gpu_milli
        times = offer.largest_mib // want.gpu_mib if want.is_memory else np.full(len(pods), each)
        pods = np.where(offer.devices >= want.gpus, np.minimum(pods, offer.devices * times // want.gpus), 0)
    if view.reserved is not None:
        pods = pods * ~view.reserved.closed_nodes(want.passes, want.holds_s)
    if want.reservation and not want.gpus:
        pods = pods * named_devices(view, want, np.arange(len(pods))).any(axis=1)
    return pods
