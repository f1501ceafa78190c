"""The plugins that come with Kaiwo. They use the same contract as others."""

from kaiwo.plugins.builtin import gpu_allocation, node_filters, node_scores, orders
from kaiwo.plugins.registry import Registry


def builtin_registry() -> Registry:
    plugins = (*node_filters.PLUGINS, *node_scores.PLUGINS, *orders.PLUGINS, *gpu_allocation.PLUGINS)
    return Registry((plugin() for plugin in plugins), fallback=gpu_allocation.FirstFit())
