"""The points at the edge: called by the runtime around a cycle, never inside it.

Their answers are values. What they change in the scheduler's world (a refused start, an amount of a resource, a
topology) becomes an event, and the journal has it: so a plan stays a function of snapshot, policy and plugins. Unlike
the points of a cycle these may keep state between two calls, and a trusted one may do I/O.
"""

from typing import Protocol, runtime_checkable

import msgspec

from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.plugins.contract import Plugin


class PodPlace(msgspec.Struct, frozen=True):
    pod: str
    node: str
    devices: tuple[str, ...] = ()


class StartPlacement(msgspec.Struct, frozen=True):
    """What one plan starts of one workload: a whole gang, a single pod, or more pods of an elastic one."""

    workload: str  # `namespace/name`
    queue: str
    user: str
    pods: tuple[PodPlace, ...]
    extended: dict[str, int] = {}  # what all these pods ask for of extended resources
    domains: dict[str, str] = {}  # by level: the domain of the network that was chosen for the workload as a whole
    labels: dict[str, str] = {}  # of the workload


class Verdict(msgspec.Struct, frozen=True):
    """Whether a placement may start now. With a reason it may not: it waits `again_s` seconds and is tried again."""

    why: str = ""  # empty: it may start; else a clause that `kaiwo why` shows
    again_s: int = 60

    @property
    def is_allowed(self) -> bool:
        return not self.why


ALLOWED = Verdict()


@runtime_checkable
class Reserve(Plugin, Protocol):
    """Takes what a placement needs outside of Kaiwo, before anybody is asked for a permit.

    One with `unreserve(placements)` is told which of them another plugin then refused. Nobody tells it when work ends:
    what is given back at the end is a `resource`.
    """

    def reserve(self, placements: tuple[StartPlacement, ...], now_s: int) -> list[Verdict]:
        """One verdict for each placement of the plan."""


@runtime_checkable
class Permit(Plugin, Protocol):
    """Has the last word about starts: lets them pass, delays them, or refuses them with a reason."""

    def permit(self, placements: tuple[StartPlacement, ...], now_s: int) -> list[Verdict]:
        """One verdict for each placement."""


@runtime_checkable
class Bind(Plugin, Protocol):
    """Gives pods something on their way: annotations of the Binding on Kubernetes, variables of a local process."""

    def bind(self, placements: tuple[StartPlacement, ...]) -> list[dict[str, str]]:
        """For each placement: keys and values for all its pods. A key looks like `example.com/seat`."""


@runtime_checkable
class PostBind(Plugin, Protocol):
    """Is told what was handed to the cluster."""

    def post_bind(self, placements: tuple[StartPlacement, ...], now_s: int) -> None:
        """Nothing depends on the answer."""


class ResourceAmounts(msgspec.Struct, frozen=True):
    """Resources that a plugin counts, by name. A workload asks for them like for any extended resource."""

    on_nodes: dict[str, dict[str, int]] = {}  # of each node, such as network cards
    floating: dict[str, int] = {}  # in all, wherever the pods run, such as licences of a program


@runtime_checkable
class CountsResource(Plugin, Protocol):
    """Says how much there is of resources that Kaiwo does not know. Kaiwo counts what is used, exactly."""

    def resource(self, nodes: tuple[Node, ...]) -> ResourceAmounts:
        """Asked when nodes change, and every few seconds."""


@runtime_checkable
class ReadsTopology(Plugin, Protocol):
    """Reads a network topology from the nodes, or from the text of the file that an administrator named."""

    def topology_source(self, nodes: tuple[Node, ...], text: str) -> Topology | None:
        """None: it finds none. Asked when nodes or the file change."""


class QueueSample(msgspec.Struct, frozen=True):
    name: str
    used_milli: int  # GPUs, with all queues below it
    quota_milli: int  # -1: unlimited


class MonitoringSample(msgspec.Struct, frozen=True):
    """The cluster at one moment, for monitoring."""

    at_s: int  # the cluster's clock
    cycle: int  # the number of the last cycle
    nodes: int
    nodes_ready: int
    gpu_milli: int  # of all working GPUs
    gpu_used_milli: int
    waiting: int  # workloads
    running: int  # workloads with pods
    queues: tuple[QueueSample, ...] = ()


@runtime_checkable
class Sink(Plugin, Protocol):
    """Turns samples into text for other monitoring. Kaiwo writes what it returns."""

    def sink(self, sample: MonitoringSample) -> str:
        """Lines to append to the sink's file; empty: none."""


class Metric(msgspec.Struct, frozen=True):
    """One number for Prometheus: `kaiwo_plugin_value{plugin, name, subject}`."""

    name: str  # such as `licences_free`
    value: float
    subject: str = ""  # a queue, a node: what it is about


@runtime_checkable
class Metrics(Plugin, Protocol):
    """Adds numbers to `/metrics`."""

    def metrics(self, sample: MonitoringSample) -> list[Metric]:
        """Asked every ten seconds; `/metrics` shows the last answer."""


class Notice(msgspec.Struct, frozen=True):
    """Something that people may want to know at once."""

    # workload-succeeded | workload-failed | workload-cancelled | plugin-set-aside | cycle-failed | alert-firing |
    # alert-resolved
    code: str
    subject: str  # a workload, a plugin, or RULE/SUBJECT of an alert
    at_s: int
    detail: str = ""
    user: str = ""
    queue: str = ""


@runtime_checkable
class Notification(Plugin, Protocol):
    """Turns notices into messages. Kaiwo delivers them: to the plugin's file, and to the `deliverTo` of its setting."""

    def notification(self, notice: Notice) -> str:
        """The message; empty: nobody is told."""
