"""Add what plugins count to the nodes, before their events reach the state: the journal has the nodes as decided on."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from kaiwo.model.events import Event, NodeChanged, PoolsChanged
from kaiwo.model.node import CountedAmounts, Node


class CountedNodes:
    """The amounts in force. One thread at a time."""

    def __init__(self) -> None:
        self.amounts = CountedAmounts()
        self._names: frozenset[str] = frozenset()  # of all resources that were ever counted

    def plain(self, node: Node) -> Node:
        """The node as the cluster reports it."""
        if self._names.isdisjoint(node.extended):
            return node
        return replace(node, extended={name: had for name, had in node.extended.items() if name not in self._names})

    def add_to(self, events: Sequence[Event]) -> Sequence[Event]:
        if not self.amounts:
            return events
        return [NodeChanged(self._with(event.node)) if isinstance(event, NodeChanged) else event for event in events]

    def change(self, amounts: CountedAmounts, nodes: Mapping[str, Node]) -> list[Event]:
        """The events that bring other amounts."""
        had_pools, self.amounts = self.amounts.floating, amounts
        self._names |= {*amounts.on_nodes, *amounts.floating}
        events: list[Event] = [NodeChanged(node) for node in self._changed(nodes.values())]
        return [*events, PoolsChanged(amounts.floating)] if amounts.floating != had_pools else events

    def _changed(self, nodes: Iterable[Node]) -> list[Node]:
        pairs = ((node, self._with(node)) for node in nodes)
        return [after for before, after in pairs if after != before]

    def _with(self, node: Node) -> Node:
        more = self.amounts.of(node.name)
        plain = self.plain(node)
        return replace(plain, extended=dict(plain.extended) | more) if more else plain
