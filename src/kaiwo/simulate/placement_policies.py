"""The placement policies that a simulation can run, by name: Kaiwo's own strategies and published baselines.

All of them are plugins of one registry, so that the shipped `decide` runs each in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kaiwo.model.errors import ConfigError
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.plugins.builtin import builtin_registry, gpu_allocation, node_filters, orders
from kaiwo.plugins.contract import Plugin
from kaiwo.plugins.registry import Registry
from kaiwo.simulate.baselines.fgd import Fgd
from kaiwo.simulate.baselines.published import (
    DotProduct,
    GpuClustering,
    GpuPacking,
    PublishedBestFit,
    RandomNode,
    RoundRobinNodes,
)
from kaiwo.simulate.typical_requests import typical_requests

DEFAULT_STRATEGY = "fragmentation-aware"
BASELINES = {
    "fgd": "fragmentation gradient descent, the best published policy; it knows the mix in advance",
    "best-fit": "the node that is left with the least, CPU and GPUs counted alike",
    "gpu-packing": "shared GPUs first, then used nodes",
    "gpu-clustering": "nodes that run pods with as many GPUs",
    "dot-product": "nodes whose free amounts match the request least (Tetris)",
    "random": "any node that fits",
    "seed": "the nodes in turn: the first release's way",
}
OWN = {
    DEFAULT_STRATEGY: "Kaiwo's default: keeps what the mix of requests can use; known or learned, see --mix",
    "first-fit": "Kaiwo's pack scores, the first device that fits",
    "worst-fit": "Kaiwo's pack scores, the emptiest device",
    "round-robin": "Kaiwo's pack scores, the devices in turn",
    "load-balanced": "Kaiwo's pack scores, the least allocated device",
}
POLICY_NAMES = (*OWN, *BASELINES)
_CHANGES_WITH_TIME = ("random", "seed")  # the score of a node changes though the node does not


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    name: str
    policy: Policy
    plugins: Registry
    forgets_scores: bool = False  # its scores may not be kept from one decision to the next


def placement_policy(name: str, requests: Sequence[Request], seed: int) -> PlacementPolicy:
    """Only `allocate` runs: in the published protocol nothing is evicted, and nothing waits."""
    rules = Policy(gpu_strategy=name, actions=("allocate",), promises=0)
    if name in OWN:
        return PlacementPolicy(name, rules, builtin_registry())
    if name not in POLICY_NAMES:
        raise ConfigError(f"there is no placement policy '{name}'; choose one of: {', '.join(POLICY_NAMES)}")
    own = (plugin() for plugin in (*node_filters.PLUGINS, *orders.PLUGINS))
    chosen = _baseline(name, requests, seed)
    plugins = Registry((*own, chosen), fallback=gpu_allocation.FirstFit())
    return PlacementPolicy(name, rules, plugins, name in _CHANGES_WITH_TIME)


def _baseline(name: str, requests: Sequence[Request], seed: int) -> Plugin:
    match name:
        case "fgd":
            return Fgd(typical_requests(requests))
        case "random":
            return RandomNode(seed)
        case "best-fit":
            return PublishedBestFit()
        case "gpu-packing":
            return GpuPacking()
        case "gpu-clustering":
            return GpuClustering()
        case "dot-product":
            return DotProduct()
    return RoundRobinNodes()
