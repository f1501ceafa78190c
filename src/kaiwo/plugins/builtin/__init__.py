"""The plugins that come with Kaiwo. They use the same contract as others."""

from kaiwo.plugins.builtin import gpu_allocation, gpu_scores, node_filters, node_scores, orders, victim_filters
from kaiwo.plugins.registry import Registry


def builtin_registry() -> Registry:
    modules = (node_filters, node_scores, orders, gpu_allocation, gpu_scores, victim_filters)
    plugins = [plugin for module in modules for plugin in module.PLUGINS]
    return Registry((plugin() for plugin in plugins), fallback=gpu_allocation.FirstFit())
