"""The local cluster: one machine or virtual nodes, with the state in SQLite."""

from kaiwo.clusters.local.cluster import LocalCluster
from kaiwo.clusters.local.cluster_file import read_cluster_file, virtual_nodes

__all__ = ["LocalCluster", "read_cluster_file", "virtual_nodes"]
