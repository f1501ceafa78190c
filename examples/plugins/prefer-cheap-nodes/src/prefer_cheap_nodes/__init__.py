"""Prefer cheap nodes, and avoid those with a history of errors: both are labels that operators set."""

from collections.abc import Sequence

import msgspec
import numpy as np

from kaiwo.plugins import TOP_SCORE, IntArray, Node, Request, Rows, View


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an administrator can set."""

    price_label: str = "example.com/price-cents-per-hour"
    errors_label: str = "example.com/errors-last-week"
    most_cents: int = 10_000  # nodes at this price or above score 0
    most_errors: int = 10  # nodes with this many errors or more score 0


class PreferCheapNodes:
    """The score falls with the price and with the errors of the last week. A node without labels is in the middle."""

    name, version, weight = "prefer-cheap-nodes", "1.0.0", 30
    Config = Config

    def __init__(self, config: Config = Config()) -> None:  # noqa: B008
        self.config = config

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        """The labels change rarely, so what follows from them is computed once for each definition of the nodes."""
        all_scores = view.nodes.once((self.name, self.config), lambda: self._scores(view.nodes.nodes))
        return all_scores[nodes]

    def _scores(self, nodes: Sequence[Node]) -> IntArray:
        return np.array([self._score_of(node) for node in nodes], np.int64)

    def _score_of(self, node: Node) -> int:
        cents = _number(node.labels.get(self.config.price_label, ""))
        errors = _number(node.labels.get(self.config.errors_label, "")) or 0
        cheap = TOP_SCORE // 2 if cents is None else _falling(cents, self.config.most_cents)
        return cheap * _falling(errors, self.config.most_errors) // TOP_SCORE


def _falling(value: int, most: int) -> int:
    """1000 at 0, 0 at `most` and above."""
    return TOP_SCORE - TOP_SCORE * min(value, most) // max(most, 1)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
