"""A resource that Kaiwo does not know: licences of a program, counted by node as an extended resource.

A licensed request asks for the extended resource. Nodes show what they have; Kaiwo counts what is used. This plugin
adds what counting alone cannot do: licensed work stays off nodes whose licence server is in maintenance, and running
work of the queues that paid for a licence is not stopped for others.
"""

import msgspec
import numpy as np

from kaiwo.plugins import BoolArray, Policy, Reason, Request, Rows, VictimTable, View


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resource: str = "example.com/licence"
    maintenance_label: str = "example.com/licence-server-maintenance"
    owners: tuple[str, ...] = ()  # queues that paid


class Licences:
    name, version = "licences", "1.0.0"
    reason, is_static, depends_on = Reason.PLUGIN, True, ("extended",)
    Config = Config

    def __init__(self, config: Config = Config()) -> None:  # noqa: B008
        self.config = config

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        if not any(name == self.config.resource for name, _ in want.extended):
            return np.ones(len(nodes), np.bool_)
        label = self.config.maintenance_label
        return np.array([view.nodes.nodes[row].labels.get(label) != "true" for row in nodes], np.bool_)

    def victim_filter(self, view: View, victims: VictimTable, policy: Policy) -> BoolArray:
        owners = set(self.config.owners)
        return np.array([queue not in owners for queue in victims.queues], np.bool_)
