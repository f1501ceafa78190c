"""A node: what it offers, its taints, and how its devices are linked."""

from collections.abc import Iterable

import msgspec

from kaiwo.model.gpus.gpu import Gpu

MAX_VIRTUAL_NODES = 10_000  # in a virtual cluster


class DeviceLinks(msgspec.Struct, frozen=True, omit_defaults=True):
    """Links between the devices of a node, by their position. Empty when they are not known."""

    mb_s: tuple[tuple[int, ...], ...] = ()  # from each device to each other, in one direction; 0: no direct link
    numa: tuple[int, ...] = ()
    nic: tuple[int, ...] = ()  # the network card on the same switch; -1: none
    nic_names: tuple[str, ...] = ()  # of these cards, by their numbers
    total_mb_s: tuple[int, ...] = ()  # what each device sends over a switch to all others together; 0: no switch

    @property
    def is_known(self) -> bool:
        return bool(self.mb_s)

    def speed(self, first: int, second: int) -> int:
        """MB/s between two devices; 0 when it is not known."""
        known = first < len(self.mb_s) and second < len(self.mb_s[first])
        return self.mb_s[first][second] if known else 0

    def numa_of(self, device: int) -> int:
        """The NUMA node of a device; -1 when it is not known."""
        return self.numa[device] if device < len(self.numa) else -1

    def nic_of(self, device: int) -> int:
        """The network card next to a device; -1 when there is none."""
        return self.nic[device] if device < len(self.nic) else -1

    def total_of(self, device: int) -> int:
        """What a device can send over a switch; 0: it has links of its own."""
        return self.total_mb_s[device] if device < len(self.total_mb_s) else 0

    def nic_names_of(self, devices: Iterable[int]) -> list[str]:
        """The cards next to these devices, in their order, each once."""
        cards = dict.fromkeys(self.nic_of(device) for device in devices)
        return [self.nic_names[card] for card in cards if 0 <= card < len(self.nic_names)]

    def numa_nodes_of(self, devices: Iterable[int]) -> list[int]:
        return sorted({numa for device in devices if (numa := self.numa_of(device)) >= 0})


class Taint(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    key: str
    value: str = ""
    effect: str = "NoSchedule"  # NoSchedule | PreferNoSchedule | NoExecute


SPARE_TAINT = "kaiwo.ai/spare"  # a node with this taint takes only pods that lost their place to a failure


class NodeFailure(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What is known and remembered about failures of a node: see `model.recovery`."""

    since_s: int = 0  # it does not work since then; 0: it works
    is_fenced: bool = False  # nothing can run on it any more: it is switched off, or cut off for good
    times: int = 0  # how often it failed in the last day
    last_s: int = 0  # when it failed last
    out_until_s: int = 0  # it came and went: it takes no new work before then
    bad_for: tuple[str, ...] = ()  # workloads that lost pods here, and do not come back


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
    reason: str = ""  # why it is not ready or cordoned
    wiring: DeviceLinks = DeviceLinks()  # between its devices
    failure: NodeFailure = NodeFailure()


class CountedAmounts(msgspec.Struct, frozen=True):
    """Extended resources that plugins count on top of what the nodes report."""

    on_nodes: dict[str, dict[str, int]] = {}  # by resource and node
    floating: dict[str, int] = {}  # by resource: a pool that pods share wherever they run

    def __bool__(self) -> bool:
        return bool(self.on_nodes or self.floating)

    def of(self, node: str) -> dict[str, int]:
        """What one node offers. Of a floating resource that is the whole pool; the pool itself is checked elsewhere."""
        found = {name: amounts[node] for name, amounts in self.on_nodes.items() if node in amounts}
        return found | self.floating
