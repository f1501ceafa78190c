"""Keep why each node was chosen: the terms of its score, beside those of the next best nodes.

In:    a node whenever one is chosen, with the scores of all.   Out: the choices whose placements were kept.
Nothing is kept unless somebody asks, as a replay and a dry run do: a cycle of the live scheduler pays nothing for it.
"""

import msgspec
import numpy as np

from kaiwo.decide.placement.node_fit import CapacityMask
from kaiwo.decide.placement.shape_scores import COST_WEIGHT, NOWHERE, OPEN_WEIGHT, scoring_of
from kaiwo.model.plan import Start
from kaiwo.model.request import Request
from kaiwo.plugins.guarded_calls import call_score
from kaiwo.plugins.registry import ActivePlugins
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy

OTHERS = 3  # next best nodes that are told
COST, OPENED = "displaced-work", "unused-domains"  # terms that no plugin gives; they precede all that plugins say


class ScoreTerm(msgspec.Struct, frozen=True):
    """One term of a node's score: what it counts is `score * weight`."""

    name: str  # of the plugin
    score: int
    weight: int


class ScoredNode(msgspec.Struct, frozen=True):
    node: str
    score: int
    terms: tuple[ScoreTerm, ...]


class NodeChoice(msgspec.Struct, frozen=True):
    """Why pods of one request were put on a node."""

    request: Request
    chosen: ScoredNode
    others: tuple[ScoredNode, ...]  # the next best; among equal ones the first name wins
    fits: int  # nodes on which a pod fits
    by_domain: bool  # the domain of the network was chosen first, and then the node


class NodeChoices:
    """The choices of one cycle, in order."""

    def __init__(self) -> None:
        self._made: list[tuple[int, NodeChoice]] = []  # with what the working copy had placed before

    @property
    def made(self) -> tuple[NodeChoice, ...]:
        return tuple(choice for _, choice in self._made)

    def clear(self) -> None:
        self._made.clear()

    def add(self, working: WorkingCopy, mask: CapacityMask | None, active: ActivePlugins, choice: "ChosenRow") -> None:
        placed = working.savepoint()[0]
        self._forget_from(placed)
        score = choice.score
        best = np.argsort(-score, kind="stable")[: OTHERS + 1]
        rows = [choice.row, *(int(row) for row in best if row != choice.row and score[row] > NOWHERE)][: OTHERS + 1]
        nodes = np.array(rows, np.int64)
        view = working.view if mask is None else mask.over(working.view, nodes)
        terms = _terms(view, choice.want, nodes, active, score)
        names = working.nodes.names
        scored = [ScoredNode(names[row], int(score[row]), each) for row, each in zip(rows, terms, strict=True)]
        fits = int((score > NOWHERE).sum())
        found = NodeChoice(choice.want, scored[0], tuple(scored[1:]), fits, choice.by_domain)
        self._made.append((placed, found))

    def settle(self, working: WorkingCopy) -> None:
        """The cycle is over: forget those whose placements were undone."""
        self._forget_from(working.savepoint()[0])

    def of(self, start: Start, want: Request) -> NodeChoice | None:
        """None: the place was kept for this pod before, as a nomination or a planned start."""
        found = (each for _, each in self._made if each.chosen.node == start.node and each.request == want)
        return next(found, None)

    def _forget_from(self, placed: int) -> None:
        while self._made and self._made[-1][0] >= placed:
            self._made.pop()


class ChosenRow(msgspec.Struct, frozen=True):
    want: Request
    row: int
    score: IntArray  # of all nodes
    by_domain: bool = False


def _terms(
    view: View, want: Request, rows: IntArray, active: ActivePlugins, score: IntArray
) -> list[tuple[ScoreTerm, ...]]:
    """By row: what each plugin says, and what precedes plugins."""
    terms: list[list[ScoreTerm]] = [[] for _ in rows]
    left = score[rows].copy()
    for plugin, weight in scoring_of(view, want, active):
        found = call_score(plugin.name, plugin.score, len(rows), view, want, rows)
        left -= weight * found
        for at, value in enumerate(found.tolist()):
            terms[at].append(ScoreTerm(plugin.name, value, weight))
    for at, rest in enumerate((-left).tolist()):
        cost, rest = divmod(rest, COST_WEIGHT)
        for name, amount, weight in ((COST, cost, COST_WEIGHT), (OPENED, rest // OPEN_WEIGHT, OPEN_WEIGHT)):
            if amount:
                terms[at].append(ScoreTerm(name, -amount, weight))
    return [tuple(each) for each in terms]
