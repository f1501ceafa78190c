"""Pack what a cluster state knows besides its events (which classes are stuck and why) for the base of a journal."""

from collections.abc import Iterable

import msgspec

from kaiwo.model.events import Event
from kaiwo.model.obstacle import Obstacle
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.plugins.registry import Ordering, Registry
from kaiwo.snapshot.backlog import ActionKey, ClassKey
from kaiwo.snapshot.cluster_state import ClusterState


class LearnedState(msgspec.Struct, frozen=True):
    obstacles: tuple[tuple[ClassKey, tuple[Obstacle, ...]], ...]
    open: tuple[ClassKey, ...]
    all_open: bool
    resumed: tuple[ClassKey, ...]
    unclaimed: tuple[ActionKey, ...]
    look_again_s: int
    rules: str
    policy: Policy  # which determines the order of the backlog
    now_s: int  # the time of its snapshot, which decides which workloads were gated
    expired: tuple[str, ...] = ()  # workloads that a plan ended because their allocation expired
    overdue: tuple[str, ...] = ()  # workloads that started where a place was kept for them: see Plan
    is_due: bool | None = None  # a cycle has something to do; None: written by an older version
    orders: tuple[str, ...] | None = None  # the plugins that determine it, too; None: all that were registered


def pack_state(state: ClusterState, policy: Policy, now_s: int) -> bytes:
    backlog = state.backlog
    obstacles = tuple((key, found.obstacles) for key, found in sorted(backlog.by_key.items()) if found.obstacles)
    learned = LearnedState(
        obstacles=obstacles,
        open=tuple(sorted(backlog.to_try)),
        all_open=backlog.try_all,
        resumed=tuple(sorted(backlog.resumed)),
        unclaimed=tuple(sorted(backlog.pending_actions)),
        look_again_s=state.look_again_s,
        rules=state.rules_digest,
        policy=policy,
        now_s=now_s,
        expired=tuple(sorted(state.ended_expired)),
        overdue=tuple(sorted(state.started_overdue)),
        is_due=state.is_cycle_due,
        orders=tuple(each.name for each in backlog.order.plugins) if isinstance(backlog.order, Ordering) else None,
    )
    return msgspec.msgpack.encode(learned)


def unpack_state(events: Iterable[Event], packed: bytes, plugins: Registry) -> ClusterState:
    """A cluster state from its events, with what the original had learned."""
    learned = msgspec.msgpack.decode(packed, type=LearnedState) if packed else None
    order = plugins.ordering(learned.policy if learned else DEFAULT_POLICY)
    state = ClusterState(order if learned is None or learned.orders is None else order.only(learned.orders))
    state.patch(events)
    if learned is None:
        return state
    state.ended_expired, state.started_overdue = set(learned.expired), set(learned.overdue)
    state.snapshot(learned.now_s)
    backlog = state.backlog
    for key, obstacles in learned.obstacles:
        if key in backlog.by_key:
            backlog.by_key[key].obstacles = obstacles
    backlog.to_try = {key: backlog.by_key[key] for key in learned.open if key in backlog.by_key}
    backlog.try_all = learned.all_open
    backlog.resumed, backlog.pending_actions = frozenset(learned.resumed), frozenset(learned.unclaimed)
    state.rules_digest, state.look_again_s = learned.rules, learned.look_again_s
    if learned.is_due is not None:  # the events alone cannot tell: what made a cycle due may be gone
        state.is_cycle_due = learned.is_due
    return state
