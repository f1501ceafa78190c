"""Decide when the prices of the request mix are computed anew: seldom, because every score depends on them.

What is due follows from the cluster state alone, so it survives a restart. The result is an event like any other: the
journal has it, and a replay does not compute it again.
"""

import numpy as np

from kaiwo.gpus.prices.solve_prices import solve_prices
from kaiwo.model.events import PricesChanged
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.policy import Policy
from kaiwo.model.request_mix import RequestKind, RequestPrices
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import NodeTable

FIRST_ARRIVALS, SETTLED_ARRIVALS = 16, 256  # from the first on at every doubling, until the mix is known well enough
LEAST_ARRIVALS, LEAST_PART = 160, 50  # then after as many pods, if they asked for a 50th of the cluster's GPUs
FIRST_ROUNDS, ROUNDS = 60, 30  # of the solver: later ones begin with the prices of before
PLUGIN, STRATEGY, PACK = "request-mix", "fragmentation-aware", "pack"


def are_prices_due(state: ClusterState, policy: Policy) -> bool:
    """Cheap, for every cycle. The state's tables must be fresh."""
    return _is_in_use(policy) and _is_due(state) and _has_choices(state.nodes, state.seen_requests.weights)


def refreshed_prices(state: ClusterState) -> PricesChanged | None:
    """New prices; None: there is nothing to compare. Where nothing is free, the prices of before stay in force."""
    seen, before = state.seen_requests, state.prices
    rounds = FIRST_ROUNDS if seen.arrivals < SETTLED_ARRIVALS or before is None else ROUNDS
    found = solve_prices(seen.weights, state.nodes, before, rounds)
    if found is None and before is not None:
        found = before.kinds, before.cpu_price
    if found is None:
        return None
    kinds, cpu_price = found
    return PricesChanged(RequestPrices(kinds, cpu_price, seen.arrivals, seen.arrived_milli))


def _is_in_use(policy: Policy) -> bool:
    is_off = PLUGIN in policy.disabled_plugins or policy.score_weights.get(PLUGIN) == 0
    return policy.gpu_strategy == STRATEGY and policy.placement == PACK and not is_off


def _is_due(state: ClusterState) -> bool:
    seen, before = state.seen_requests, state.prices
    if before is None:
        return seen.arrivals >= FIRST_ARRIVALS
    since = seen.arrivals - before.arrivals
    if seen.arrivals <= SETTLED_ARRIVALS:
        return since >= before.arrivals
    asked = (seen.arrived_milli - before.arrived_milli) * LEAST_PART
    return since >= LEAST_ARRIVALS and asked >= int(state.nodes.gpu_total.sum())


def _has_choices(nodes: NodeTable, weights: dict[RequestKind, int]) -> bool:
    """Where all nodes are alike and all requests are for whole GPUs, packing is right, and nothing need be learned."""
    if any(0 < kind.gpu_milli < WHOLE_MILLI for kind in weights):
        return True
    return any(kind.gpus for kind in weights) and nodes.once("GPU nodes differ", lambda: _differ(nodes))


def _differ(nodes: NodeTable) -> bool:
    has_gpus = nodes.gpu_total > 0
    table = np.column_stack((nodes.gpu_model[has_gpus, 0], nodes.cpu_size[has_gpus], nodes.gpu_total[has_gpus]))
    return bool((table != table[:1]).any())
