"""A cluster in memory on a virtual clock."""

from kaiwo.clusters.simulated.cluster import SimulatedCluster

__all__ = ["SimulatedCluster"]
