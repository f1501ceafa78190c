"""The plugin contract, the registry, guarded calls, and the built-in plugins.

The names below are all that a plugin needs; a test pins them. Everything else in Kaiwo may change from one version to
the next.
"""

from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.network.topology import Domain, Topology, TopologyLevel
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.plugins.contract import (
    TOP_SCORE,
    DomainTable,
    ReplicaNeed,
    VictimTable,
)
from kaiwo.plugins.edge_contract import (
    ALLOWED,
    Metric,
    MonitoringSample,
    Notice,
    PodPlace,
    QueueSample,
    ResourceAmounts,
    StartPlacement,
    Verdict,
)
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.node_table import CPU, EXTENDED, FREE_GPU, MEMORY, MIB, MILLI, PODS, SIZE, USABLE
from kaiwo.snapshot.view import View

__all__ = [
    "ALLOWED",
    "CPU",
    "EXTENDED",
    "FREE_GPU",
    "MEMORY",
    "MIB",
    "MILLI",
    "PODS",
    "SIZE",
    "TOP_SCORE",
    "USABLE",
    "BoolArray",
    "Domain",
    "DomainTable",
    "Gpu",
    "IntArray",
    "Metric",
    "MonitoringSample",
    "Node",
    "Notice",
    "PodPlace",
    "Policy",
    "Queue",
    "QueueSample",
    "Reason",
    "ReplicaNeed",
    "Request",
    "ResourceAmounts",
    "Rows",
    "StartPlacement",
    "Topology",
    "TopologyLevel",
    "Verdict",
    "VictimTable",
    "View",
    "Workload",
]
