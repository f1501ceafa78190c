"""The plugins that come with Kaiwo. They come in by the same door as strangers'."""

from kaiwo.plugins.builtin.allocations import (
    BestFit,
    FirstFit,
    FragmentationAware,
    LoadBalanced,
    RoundRobin,
    WorstFit,
)
from kaiwo.plugins.builtin.filters import NodeNotCordoned, NodeReady, NodeRules, NodesToAvoid, NodeTaints
from kaiwo.plugins.builtin.orders import PoorestQueue, PriorityThenAge, QueuePriority
from kaiwo.plugins.builtin.scores import FillSharedGpus, Pack, SpareGpuNodes, Spread
from kaiwo.plugins.registry import Registry


def builtin_registry() -> Registry:
    """A registry with every plugin of ours."""
    return Registry(
        plugin()
        for plugin in (
            NodeReady, NodeNotCordoned, NodeRules, NodeTaints, NodesToAvoid,
            Pack, Spread, FillSharedGpus, SpareGpuNodes,
            PoorestQueue, QueuePriority, PriorityThenAge,
            FragmentationAware, FirstFit, BestFit, WorstFit, RoundRobin, LoadBalanced,
        )
    )  # fmt: skip
