"""A resource that Kaiwo does not know: licences of a program, so many in all, wherever the pods run.

The plugin says how many there are, and Kaiwo counts what is used. It adds what counting alone cannot do: licensed work
stays off nodes that cannot reach the licence server, and running work of queues that paid is not stopped for others.
"""

import msgspec
import numpy as np

from kaiwo.plugins import BoolArray, Node, Policy, Reason, Request, ResourceAmounts, Rows, VictimTable, View


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resource: str = "example.com/licence"
    seats: int = 5  # in all
    maintenance_label: str = "example.com/licence-server-maintenance"
    owners: tuple[str, ...] = ()  # queues that paid


class Licences:
    name, version = "licences", "1.0.0"
    reason, is_static, depends_on = Reason.PLUGIN, True, ("extended",)
    Config = Config

    def __init__(self, config: Config = Config()) -> None:  # noqa: B008
        self.config = config

    def resource(self, nodes: tuple[Node, ...]) -> ResourceAmounts:
        return ResourceAmounts(floating={self.config.resource: self.config.seats})

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        if not any(name == self.config.resource for name, _ in want.extended):
            return np.ones(len(nodes), np.bool_)
        label = self.config.maintenance_label
        return np.array([view.nodes.nodes[row].labels.get(label) != "true" for row in nodes], np.bool_)

    def victim_filter(self, view: View, victims: VictimTable, policy: Policy) -> BoolArray:
        owners = set(self.config.owners)
        return np.array([queue not in owners for queue in victims.queues], np.bool_)
