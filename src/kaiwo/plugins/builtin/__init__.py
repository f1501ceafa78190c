"""The plugins that come with Kaiwo. They use the same contract as others."""

from kaiwo.plugins.builtin import (
    counted_resources,
    domains,
    gpu_allocation,
    gpu_scores,
    measured_load,
    node_filters,
    node_scores,
    orders,
    replicas,
    reports,
    request_mix,
    start_control,
    steady_nodes,
    victim_filters,
)
from kaiwo.plugins.registry import Registry

# An administrator switches these on; the others take part in every cycle, unless the policy disables them.
SWITCHED = (*start_control.PLUGINS, *reports.PLUGINS, *counted_resources.PLUGINS)


def builtin_registry() -> Registry:
    modules = (
        node_filters, node_scores, request_mix, steady_nodes, measured_load, orders, gpu_allocation, gpu_scores,
        victim_filters, domains, replicas,
    )  # fmt: skip
    plugins = [plugin for module in modules for plugin in module.PLUGINS]
    return Registry((plugin() for plugin in plugins), fallback=gpu_allocation.FirstFit())
