"""The kinds of requests that arrive, and what each is worth to the cluster."""

import msgspec

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request


class RequestKind(msgspec.Struct, gc=False, frozen=True, order=True):
    """Requests that need the same of a node, as far as the value of free GPUs depends on it."""

    cpu_milli: int
    gpus: int = 0
    gpu_milli: int = 0  # of each GPU; 0: it needs none
    models: tuple[str, ...] = ()  # sorted; empty: any model

    @property
    def total_milli(self) -> int:
        return self.gpus * self.gpu_milli


class SeenKind(msgspec.Struct, gc=False, frozen=True):
    """A kind of request with its weight: four for each pod, less as it was seen longer ago."""

    kind: RequestKind
    weight: int


class PricedKind(msgspec.Struct, gc=False, frozen=True):
    """A kind of request, how often it is asked for, and what one pod of it is worth beyond another place for it."""

    kind: RequestKind
    weight: int
    worth: int  # in the units of gpus.prices


class RequestPrices(msgspec.Struct, frozen=True):
    """What the mix of requests makes of free GPUs, as of a number of arrivals."""

    kinds: tuple[PricedKind, ...]
    cpu_price: int  # what one CPU is worth to work without GPUs, in the same units
    arrivals: int  # pods that had been seen by then
    arrived_milli: int  # the GPUs that they asked for


def has_kind(request: Request) -> bool:
    """Partitions and requests for memory have none: they take different parts of different devices."""
    if not request.gpus:
        return True
    is_one_share = request.gpus == 1 or request.gpu_milli == WHOLE_MILLI
    return is_one_share and not request.partition and not request.gpu_mib


def kind_of(request: Request) -> RequestKind | None:
    if not has_kind(request):
        return None
    if not request.gpus:
        return RequestKind(request.cpu_milli)
    return RequestKind(request.cpu_milli, request.gpus, request.gpu_milli, tuple(sorted(set(request.gpu_models))))
