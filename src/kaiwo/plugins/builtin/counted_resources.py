"""A built-in resource that an administrator switches on: floating licences, and amounts that node labels state."""

import msgspec

from kaiwo.model.node import Node
from kaiwo.plugins.edge_contract import ResourceAmounts


class CountedResourcesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    floating: dict[str, int] = {}  # by resource: how much there is, wherever pods run
    labels: dict[str, str] = {}  # by resource: the node label whose value is the node's amount


class CountedResources:
    """Count resources that no node reports by itself: floating licences, network cards, seats."""

    name, version = "counted-resources", "1"
    Config = CountedResourcesConfig

    def __init__(self, config: CountedResourcesConfig = CountedResourcesConfig()) -> None:  # noqa: B008
        self._config = config

    def resource(self, nodes: tuple[Node, ...]) -> ResourceAmounts:
        on_nodes = {
            name: {node.name: int(node.labels[label]) for node in nodes if node.labels.get(label, "").isdecimal()}
            for name, label in self._config.labels.items()
        }
        return ResourceAmounts(on_nodes, dict(self._config.floating))


PLUGINS = (CountedResources,)
