"""Divide the GPUs that a workload asks for over pods, by the replica strategy of the policy.

GPUs given always equal GPUs asked: an answer that gives more or less is a fault of the plugin.
"""

from collections.abc import Callable

import numpy as np

from kaiwo.plugins.contract import ReplicaNeed, ReplicaStrategy
from kaiwo.plugins.guarded_calls import PluginFaultError, call_for_array
from kaiwo.plugins.registry import ActivePlugins
from kaiwo.snapshot.view import View

SHOWN = 40  # of a wrong answer, which may have millions of entries


def divide_gpus(strategy: ReplicaStrategy, view: View, need: ReplicaNeed) -> tuple[int, ...]:
    """The GPUs of each pod, the largest first."""
    found = call_for_array(strategy.name, strategy.replica_strategy, view, need)
    is_right = found.ndim == 1 and len(found) and found.min() >= 1 and found.max() <= need.largest
    if not is_right or int(found.sum()) != need.gpus:
        given = f"{found[:SHOWN].tolist()!r:.80}"
        raise PluginFaultError(strategy.name, f"divided {need.gpus} GPUs as {given}, at most {need.largest} each")
    return tuple(np.sort(found)[::-1].tolist())


def replicas_of(
    active: ActivePlugins,
    view: View,
    need: ReplicaNeed,
    report: Callable[[PluginFaultError], None] = lambda fault: None,
) -> tuple[int, ...]:
    """By the policy's strategy, or by Kaiwo's own where that one misbehaves, which is reported."""
    for strategy in active.replicas[:-1]:
        try:
            return divide_gpus(strategy, view, need)
        except PluginFaultError as fault:
            report(fault)
    return divide_gpus(active.replicas[-1], view, need)
