"""A cluster in memory on a virtual clock: for the simulator that is to come, and for tests until then."""

from kaiwo.clusters.simulated.cluster import SimulatedCluster

__all__ = ["SimulatedCluster"]
