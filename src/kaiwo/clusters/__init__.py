"""Three kinds of cluster behind one protocol."""

from kaiwo.clusters.protocol import Cluster, Work

__all__ = ["Cluster", "Work"]
