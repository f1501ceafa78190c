"""The plugins that come with Kaiwo. They use the same contract as others."""

from kaiwo.plugins.builtin.gpu_allocation import (
    BestFit,
    FirstFit,
    FragmentationAware,
    LoadBalanced,
    RoundRobin,
    WorstFit,
)
from kaiwo.plugins.builtin.node_filters import (
    GpuIsolation,
    NodeNotCordoned,
    NodeReady,
    NodeRules,
    NodesToAvoid,
    NodeTaints,
)
from kaiwo.plugins.builtin.node_scores import (
    FillSharedGpus,
    OwnReservations,
    Pack,
    PreferredNodes,
    SpareGpuNodes,
    Spread,
)
from kaiwo.plugins.builtin.orders import FairShare, PriorityThenAge
from kaiwo.plugins.registry import Registry


def builtin_registry() -> Registry:
    plugins = (
        NodeReady, NodeNotCordoned, NodeRules, NodeTaints, NodesToAvoid, GpuIsolation,
        Pack, Spread, FillSharedGpus, SpareGpuNodes, PreferredNodes,
        OwnReservations,
        FairShare, PriorityThenAge,
        FragmentationAware, FirstFit, BestFit, WorstFit, RoundRobin, LoadBalanced,
    )  # fmt: skip
    return Registry((plugin() for plugin in plugins), fallback=FirstFit())
