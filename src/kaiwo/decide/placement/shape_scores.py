"""Score nodes for each shape, and count how many pods fit: computed once, then updated only for nodes that changed.

The scores at the start of a cycle are kept in the cluster state's caches: the next cycle updates only what changed.
"""

from typing import Any, TypeAlias

import msgspec
import numpy as np

from kaiwo.decide.placement.node_fit import CapacityMask, pods_that_fit
from kaiwo.decide.placement.pod_affinity import affinity_verdicts, domains_of, sum_by_domain
from kaiwo.gpus.device_fit import pods_per_device
from kaiwo.model.request import Request
from kaiwo.plugins.contract import Filter, Score
from kaiwo.plugins.guarded_calls import call_for_int, call_plugin, call_score
from kaiwo.plugins.registry import ActivePlugins
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy

NOWHERE = -(2**62)  # below any score that plugins and weights can give
MAX_KEPT = 2_000  # shapes whose state outlives a cycle: 34 MB at 1,000 nodes

Verdict: TypeAlias = tuple[int, BoolArray]  # of the static filters, as of a version


class ShapeState(msgspec.Struct, frozen=True):
    """What is known of one shape as of a version of the nodes. It is replaced, never changed, so it can be shared."""

    version: int
    slots: IntArray  # how many pods fit
    score: IntArray  # how good; NOWHERE where none fits
    allowed: BoolArray  # by the static filters
    room: int  # how many pods fit in all, at most


class ShapeScores:
    """The state of every shape that a cycle examines."""

    def __init__(
        self, state: ClusterState, start: View, working: WorkingCopy, active: ActivePlugins, keeps: bool = True
    ) -> None:
        self._shapes = state.backlog.shapes
        self.working, self._active = working, active
        self.start, self.view = start, working.view  # before the cycle, and with its placements
        # Scores for a future time are not kept for the next cycle.
        self._kept: dict[int, ShapeState] = state.caches.setdefault(active.token, {}) if keeps else {}
        self._verdicts: dict[Any, Verdict] = state.caches.setdefault(("static", active.token), {})
        self._current: dict[int, ShapeState] = {}
        self._by_request: dict[Request, ShapeState] = {}
        self._by_affinity: dict[Request, ShapeState] = {}
        self._masked: dict[tuple[Request, tuple[int, ...]], ShapeState] = {}
        self._redefined_at = int(working.nodes.node_changed.max(initial=-1))

    def state(self, shape: int, mask: CapacityMask | None = None) -> ShapeState:
        """The state of a shape after all placements so far, under the mask."""
        now = self._current.get(shape)
        if now is None:
            now = self._kept.get(shape) or _unknown(len(self.view.nodes.names))
            now = self._repaired(self.start, self._shapes[shape], now)
            if shape in self._kept or len(self._kept) < MAX_KEPT:
                self._kept[shape] = now
        want = self._shapes[shape]
        now = self._current[shape] = self._repaired(self.view, want, now)
        return self._with_mask_and_affinity(want, now, mask)

    def state_of(self, want: Request, mask: CapacityMask | None = None) -> ShapeState:
        """The same for a request that no waiting workload has; kept for this cycle only."""
        now = self._by_request.get(want) or _unknown(len(self.view.nodes.names))
        now = self._by_request[want] = self._repaired(self.view, want, now)
        return self._with_mask_and_affinity(want, now, mask)

    def mark_filled(self, shape: int, row: int) -> None:
        """A node took as many pods of the shape as fit: it need not be evaluated again."""
        now = self._current[shape]
        slots, score = now.slots.copy(), now.score.copy()
        slots[row], score[row] = 0, NOWHERE
        room = now.room - int(now.slots[row])
        self._current[shape] = ShapeState(self.view.clock, slots, score, now.allowed, room)

    def pods_per_device_on(self, want: Request, row: int, mask: CapacityMask | None) -> IntArray:
        """How often one device's part of a request fits on each device of a node."""
        nodes = np.array([row])
        view = self.view if mask is None else mask.over(self.view, nodes)
        times: IntArray = pods_per_device(view, want, nodes)[0]
        return times

    def _with_mask_and_affinity(self, want: Request, now: ShapeState, mask: CapacityMask | None) -> ShapeState:
        if mask is not None:
            now = self._under_mask(want, now, mask)
            return now if want.neighbours is None else with_affinity(self.working, want, now)
        return now if want.neighbours is None else self._with_affinity(want, now)

    def _under_mask(self, want: Request, plain: ShapeState, mask: CapacityMask) -> ShapeState:
        known = self._masked.get((want, mask.key))
        if known is None or known.version != self.view.clock:
            slots, score = plain.slots.copy(), plain.score.copy()
            rows = mask.rows[plain.slots[mask.rows] > 0]
            if len(rows):
                view = mask.over(self.view, rows)
                slots[rows], score[rows] = evaluate(view, want, rows, self._active, plain.allowed[rows])
            known = ShapeState(self.view.clock, slots, score, plain.allowed, int(slots.sum()))
            self._masked[want, mask.key] = known
        return known

    def _with_affinity(self, want: Request, plain: ShapeState) -> ShapeState:
        """One placement may close or open nodes far from it, so all nodes are checked."""
        known = self._by_affinity.get(want)
        if known is None or known.version != self.view.clock:
            known = self._by_affinity[want] = with_affinity(self.working, want, plain)
        return known

    def _repaired(self, view: View, want: Request, state: ShapeState) -> ShapeState:
        if state.version >= view.clock:
            return state
        touched = (view.changed > state.version).nonzero()[0]
        if not len(touched):
            return ShapeState(view.clock, state.slots, state.score, state.allowed, state.room)
        may = state.allowed if self._redefined_at <= state.version else self._allowed(view, want)
        if len(touched) == len(state.slots):
            slots, score = evaluate(view, want, touched, self._active, may)
        else:
            slots, score = state.slots.copy(), state.score.copy()
            slots[touched], score[touched] = evaluate(view, want, touched, self._active, may[touched])
        return ShapeState(view.clock, slots, score, may, int(slots.sum()))

    def _allowed(self, view: View, want: Request) -> BoolArray:
        """The nodes that the static filters allow: they are called once for all requests that look alike to them."""
        key = self._active.static_key(want)
        version, verdict = self._verdicts.get(key) or (-1, np.zeros(len(view.nodes.names), np.bool_))
        redefined = (view.nodes.node_changed > version).nonzero()[0]
        if len(redefined):
            verdict = verdict.copy()
            verdict[redefined] = allowed(view, want, redefined, self._active.static_filters)
            if key in self._verdicts or len(self._verdicts) < MAX_KEPT:
                self._verdicts[key] = (self._redefined_at, verdict)
        return verdict


def _unknown(rows: int) -> ShapeState:
    nothing = np.zeros(rows, np.int64)
    return ShapeState(-1, nothing, nothing, np.zeros(rows, np.bool_), 0)


def allowed(view: View, want: Request, nodes: Rows, filters: tuple[Filter, ...]) -> BoolArray:
    verdict = np.ones(len(nodes), np.bool_)
    for plugin in filters:
        verdict &= call_plugin(plugin.name, plugin.filter, len(nodes), view, want, nodes).astype(np.bool_)
    return verdict


def evaluate(
    view: View, want: Request, nodes: Rows, active: ActivePlugins, may: BoolArray
) -> tuple[IntArray, IntArray]:
    """Slots and score of these nodes; the static filters allow those in `may`."""
    slots = pods_that_fit(view, want, nodes) * may
    if active.free_filters:
        slots *= allowed(view, want, nodes, active.free_filters)
    total = np.zeros(len(nodes), np.int64)
    for plugin, weight in scores_for(want, active):
        total += weight * call_score(plugin.name, plugin.score, len(nodes), view, want, nodes)
    total[slots <= 0] = NOWHERE
    return slots, total


def with_affinity(working: WorkingCopy, want: Request, plain: ShapeState) -> ShapeState:
    """The nodes where the rules between pods allow one more pod; `room` also counts what other placements may open."""
    if not plain.slots.any():  # the rules cannot open a node to it, however many there are
        return ShapeState(working.view.clock, plain.slots, plain.score, plain.allowed, 0)
    final = now = np.ones(len(plain.slots), np.bool_)
    for verdict in affinity_verdicts(working, want):
        now = now & verdict.mask
        final = final & verdict.mask if verdict.is_final else final
    most, levels = plain.slots * final, want.neighbours.self_exclusion_levels if want.neighbours is not None else ()
    for level in levels:
        most = np.where(domains_of(working.nodes, level) >= 0, np.minimum(most, 1), most)
    room = min([int(most.sum()), *(_one_per_domain(working.view, most, level) for level in levels)])
    slots = most * now
    return ShapeState(working.view.clock, slots, np.where(slots > 0, plain.score, NOWHERE), plain.allowed, room)


def _one_per_domain(view: View, slots: IntArray, level: str) -> int:
    """How many pods find a domain of their own; nodes without a domain are not bound."""
    domains = domains_of(view.nodes, level)
    return int((sum_by_domain(domains, slots) > 0).sum() + slots[domains < 0].sum())


def scores_for(want: Request, active: ActivePlugins) -> list[tuple[Score, int]]:
    return [(plugin, weight) for plugin, weight in active.scores if _applies(plugin, want)]


def _applies(plugin: Score, want: Request) -> bool:
    applies = getattr(plugin, "applies", None)
    return applies is None or bool(call_for_int(plugin.name, applies, want))
