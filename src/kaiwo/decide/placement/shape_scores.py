"""Score nodes for each shape, and count how many pods fit: computed once, then updated only for nodes that changed.

What is known at the start of a cycle is kept in the cluster state's caches: the next cycle updates only what changed.
What plugins of others said ends with the cycle: a replay that begins later must decide the same without it.
Nodes are scored for a shape only when a pod of it is placed: of 51 kinds that wait, one change lets one or two start.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace

from kaiwo.decide.placement.node_fit import CapacityMask, may_fit, pods_that_fit
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

if TYPE_CHECKING:
    from kaiwo.decide.placement.node_choices import NodeChoices

NOWHERE = -(2**62)  # below any score that plugins and weights can give
COST_WEIGHT = 1 << 32  # of what a place costs, above every score
OPEN_WEIGHT = 1 << 28  # of domains that stay unused, above the scores of nodes and below every cost
MAX_KEPT = 2_000  # shapes whose state outlives a cycle: 34 MB at 1,000 nodes

Scoring: TypeAlias = list[tuple[Score, int]]  # the plugins that score nodes for a request, with their weights
Verdict: TypeAlias = tuple[int, BoolArray]  # of the static filters, as of a version


class ShapeState(msgspec.Struct, frozen=True):
    """What is known of one shape as of a version of the nodes. It is replaced, never changed, so it can be shared."""

    version: int
    slots: IntArray  # how many pods fit
    score: IntArray  # how good, as of the version `scored`; NOWHERE where none fits
    allowed: BoolArray  # by the static filters
    room: int  # how many pods fit in all, at most
    scored: int


class ShapeScores:
    """The state of every shape that a cycle examines."""

    def __init__(
        self, state: ClusterState, start: View, working: WorkingCopy, active: ActivePlugins, keeps: bool = True
    ) -> None:
        self._shapes = state.backlog.shapes
        self.working, self._active = working, active
        self.start, self.view = start, working.view  # before the cycle, and with its placements
        # Scores for a future time are not kept for the next cycle, nor what filters of others said.
        is_kept = keeps and not active.others_filter
        self._kept: dict[int, ShapeState] = state.caches.setdefault(active.token, {}) if is_kept else {}
        self._scores_end = active.others_score  # with the cycle
        self._verdicts: dict[Any, Verdict] = state.caches.setdefault(("static", active.token), {})
        self._current: dict[int, ShapeState] = {}
        self._by_request: dict[Request, ShapeState] = {}
        self._by_affinity: dict[Request, ShapeState] = {}
        self._scoring: dict[Request, Scoring] = {}
        self._masked: dict[tuple[Request, tuple[int, ...]], ShapeState] = {}
        self.choices: NodeChoices | None = None  # where somebody asks why nodes were chosen
        self._redefined_at = int(working.nodes.node_changed.max(initial=-1))

    def state(self, shape: int, mask: CapacityMask | None = None) -> ShapeState:
        """The state of a shape after all placements so far, under the mask; its scores may be older."""
        want = self._shapes[shape]
        if mask is not None or want.neighbours is not None:
            return self.scored(shape, mask)
        return self._fitted(shape, want)

    def scored(self, shape: int, mask: CapacityMask | None = None) -> ShapeState:
        """The same with its scores."""
        want = self._shapes[shape]
        now = self._fitted(shape, want)
        if now.scored < now.version:
            now = self._current[shape] = self._scored(shape, want, now)
        return self._with_mask_and_affinity(want, now, mask)

    def state_of(self, want: Request, mask: CapacityMask | None = None) -> ShapeState:
        """The same for a request that no waiting workload has; kept for this cycle only."""
        now = self._by_request.get(want) or _unknown(len(self.view.nodes.names))
        now = self._by_request[want] = self._rescored(self.view, want, self._refitted(self.view, want, now))
        return self._with_mask_and_affinity(want, now, mask)

    def mark_filled(self, shape: int, row: int) -> None:
        """A node took as many pods of the shape as fit: it need not be evaluated again."""
        now = self._current[shape]
        slots, score = now.slots.copy(), now.score.copy()
        slots[row], score[row] = 0, NOWHERE
        room = now.room - int(now.slots[row])
        self._current[shape] = ShapeState(self.view.clock, slots, score, now.allowed, room, self.view.clock)

    def pods_per_device_on(self, want: Request, row: int, mask: CapacityMask | None) -> IntArray:
        """How often one device's part of a request fits on each device of a node."""
        nodes = self.view.at(row)
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
                slots[rows] = fitting(view, want, rows, self._active, plain.allowed[rows])
                score[rows] = scores_of(view, want, rows, self._scoring_of(want), slots[rows])
            clock = self.view.clock
            known = ShapeState(clock, slots, score, plain.allowed, int(slots.sum()), clock)
            self._masked[want, mask.key] = known
        return known

    def _with_affinity(self, want: Request, plain: ShapeState) -> ShapeState:
        """One placement may close or open nodes far from it, so all nodes are checked."""
        known = self._by_affinity.get(want)
        if known is None or known.version != self.view.clock:
            known = self._by_affinity[want] = with_affinity(self.working, want, plain)
        return known

    def _fitted(self, shape: int, want: Request) -> ShapeState:
        now = self._current.get(shape)
        if now is None:
            now = self._refitted(self.start, want, self._kept.get(shape) or _unknown(len(self.view.nodes.names)))
            if self._scores_end:
                now = replace(now, scored=-1)
            if shape in self._kept or len(self._kept) < MAX_KEPT:
                self._kept[shape] = now
        now = self._current[shape] = self._refitted(self.view, want, now)
        return now

    def _scored(self, shape: int, want: Request, now: ShapeState) -> ShapeState:
        """Scored as of the start of the cycle first, for the next cycle to build on."""
        kept = self._kept.get(shape)
        if kept is not None and now.scored < kept.version:
            if kept.scored < kept.version:
                kept = self._kept[shape] = self._rescored(self.start, want, kept)
            now = replace(now, score=kept.score, scored=kept.scored)
        return self._rescored(self.view, want, now)

    def _refitted(self, view: View, want: Request, state: ShapeState) -> ShapeState:
        """Count again how many pods fit on the nodes that changed."""
        if state.version >= view.clock:
            return state
        touched = view.touched_since(state.version)
        if not len(touched):
            return replace(state, version=view.clock)
        may = state.allowed if self._redefined_at <= state.version else self._allowed(view, want)
        if not self._active.free_filters and not may_fit(view, want, touched):
            # Usually so after a pod took what was freed: then most shapes need not be examined again.
            return _without_room(view, state, touched, may)
        if len(touched) == len(state.slots):
            slots = fitting(view, want, touched, self._active, may)
        else:
            slots = state.slots.copy()
            slots[touched] = fitting(view, want, touched, self._active, may[touched])
        return ShapeState(view.clock, slots, state.score, may, int(slots.sum()), state.scored)

    def _rescored(self, view: View, want: Request, state: ShapeState) -> ShapeState:
        """Score the nodes again that changed since they were scored."""
        if state.scored >= state.version:
            return state
        touched = view.touched_since(state.scored)
        if len(touched) == len(state.slots):
            score = scores_of(view, want, touched, self._scoring_of(want), state.slots)
        elif len(touched):
            score = state.score.copy()
            score[touched] = scores_of(view, want, touched, self._scoring_of(want), state.slots[touched])
        else:
            score = state.score
        return replace(state, score=score, scored=state.version)

    def _scoring_of(self, want: Request) -> Scoring:
        found = self._scoring.get(want)
        if found is None:
            found = self._scoring[want] = scoring_of(self.view, want, self._active)
        return found

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
    return ShapeState(-1, nothing, nothing, np.zeros(rows, np.bool_), 0, -1)


def _without_room(view: View, state: ShapeState, rows: Rows, allowed: BoolArray) -> ShapeState:
    """The state when no pod fits on these nodes."""
    slots, lost = state.slots, int(state.slots[rows].sum())
    if lost:
        slots = slots.copy()
        slots[rows] = 0
    return ShapeState(view.clock, slots, state.score, allowed, state.room - lost, state.scored)


def allowed(view: View, want: Request, nodes: Rows, filters: tuple[Filter, ...]) -> BoolArray:
    verdict = np.ones(len(nodes), np.bool_)
    for plugin in filters:
        verdict &= call_plugin(plugin.name, plugin.filter, len(nodes), view, want, nodes).astype(np.bool_)
    return verdict


def fitting(view: View, want: Request, nodes: Rows, active: ActivePlugins, may: BoolArray) -> IntArray:
    """How many pods fit on these nodes; the static filters allow those in `may`."""
    slots = pods_that_fit(view, want, nodes) * may
    if active.free_filters:
        slots *= allowed(view, want, nodes, active.free_filters)
    return slots


def scores_of(view: View, want: Request, nodes: Rows, scoring: Scoring, slots: IntArray) -> IntArray:
    """The weighted scores of these nodes, where `slots` pods fit. Others are not scored if they are many: on a busy
    cluster a pod fits on one changed node of forty."""
    fits = slots > 0
    some = fits.nonzero()[0]
    is_part = 2 * len(some) < len(nodes) and not view.has_own_amounts  # those have amounts for just these nodes
    if is_part:
        nodes = nodes[some]
    total = np.zeros(len(nodes), np.int64)
    if len(some):
        for plugin, weight in scoring:
            total += weight * call_score(plugin.name, plugin.score, len(nodes), view, want, nodes)
    if not is_part:
        total[~fits] = NOWHERE
        return total
    scores = np.full(len(fits), NOWHERE, np.int64)
    scores[some] = total
    return scores


def with_affinity(working: WorkingCopy, want: Request, plain: ShapeState) -> ShapeState:
    """The nodes where the rules between pods allow one more pod; `room` also counts what other placements may open."""
    if not plain.slots.any():  # the rules cannot open a node to it, however many there are
        return replace(plain, room=0)
    final = now = np.ones(len(plain.slots), np.bool_)
    for verdict in affinity_verdicts(working, want):
        now = now & verdict.mask
        final = final & verdict.mask if verdict.is_final else final
    most, levels = plain.slots * final, want.neighbours.self_exclusion_levels if want.neighbours is not None else ()
    for level in levels:
        most = np.where(domains_of(working.nodes, level) >= 0, np.minimum(most, 1), most)
    room = min([int(most.sum()), *(_one_per_domain(working.view, most, level) for level in levels)])
    slots, clock = most * now, working.view.clock
    return ShapeState(clock, slots, np.where(slots > 0, plain.score, NOWHERE), plain.allowed, room, clock)


def _one_per_domain(view: View, slots: IntArray, level: str) -> int:
    """How many pods find a domain of their own; nodes without a domain are not bound."""
    domains = domains_of(view.nodes, level)
    return int((sum_by_domain(domains, slots) > 0).sum() + slots[domains < 0].sum())


def scoring_of(view: View, want: Request, active: ActivePlugins) -> Scoring:
    """The plugins that have an opinion about such a request in this cycle."""
    return [(plugin, weight) for plugin, weight in active.scores_of(want) if _has_opinion(plugin, view, want)]


def _has_opinion(plugin: Score, view: View, want: Request) -> bool:
    applies, is_silent = getattr(plugin, "applies", None), getattr(plugin, "is_silent", None)
    if applies is not None and not call_for_int(plugin.name, applies, want):
        return False
    return is_silent is None or not call_for_int(plugin.name, is_silent, view, want)
