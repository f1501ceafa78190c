"""A machine that runs pods."""

import msgspec

from kaiwo.model.gpu import Gpu
from kaiwo.model.wiring import Wiring

MOST_NODES = 10_000  # in a cluster that Kaiwo makes up itself


class Taint(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Keeps pods away that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"  # NoSchedule | PreferNoSchedule | NoExecute


class Node(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What a machine offers when nothing runs on it."""

    name: str
    cpu_milli: int = 0
    memory_mib: int = 0
    pods: int = 110
    gpus: tuple[Gpu, ...] = ()
    extended: dict[str, int] = {}
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    cordoned: bool = False
    reason: str = ""  # why it is not ready, or who cordoned it
    wiring: Wiring = Wiring()  # between its devices
