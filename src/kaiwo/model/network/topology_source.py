"""Where a topology is read: a file of some kind, or labels of nodes."""

from enum import StrEnum

import msgspec

from kaiwo.model.network.topology import DomainAccess, Topology


class SourceKind(StrEnum):
    """The words that a cluster file and `kaiwo up --topology` use."""

    PRESET = "preset"  # the label keys of a known tool or cloud
    LABELS = "labels"  # any label keys
    IBNETDISCOVER = "ibnetdiscover"  # a file with the output of that command
    SLURM = "slurm"  # topology.conf or topology.yaml
    KAIWO = "kaiwo"  # a file with a KaiwoTopology
    KUEUE = "kueue"  # a file with a Topology of Kueue
    NCCL = "nccl"  # the links inside nodes: NCCL_TOPO_DUMP_FILE
    WRITTEN = "levels"  # written in the cluster file itself


FILE_KINDS = (SourceKind.IBNETDISCOVER, SourceKind.SLURM, SourceKind.KAIWO, SourceKind.KUEUE, SourceKind.NCCL)


class TopologySource(msgspec.Struct, frozen=True):
    kind: SourceKind
    name: str  # of the topology
    path: str = ""  # of a file
    keys: tuple[str, ...] = ()  # of labels, or the one preset
    nodes: tuple[str, ...] = ()  # NCCL: the nodes that look like this inside; empty: all
    written: Topology | None = None
    access: tuple[DomainAccess, ...] = ()  # who may use which domains, whatever the source says
