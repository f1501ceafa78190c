"""Run scheduling cycles on a cluster state, without a clock or a thread, and journal each decision.

The scheduling loop runs the parts of a cycle on the right threads; benchmarks and the simulator call `cycle` directly.
"""

import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

import kaiwo
from kaiwo.decide import decide
from kaiwo.decide.cycle import BUILTIN
from kaiwo.history.journal_entries import Base, Cycle, Setting
from kaiwo.history.journal_writer import Journal
from kaiwo.model.events import Event, SharingRulesInUse
from kaiwo.model.plan import Note, Plan
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.plugins.contract import WorkloadOrder
from kaiwo.plugins.guarded_calls import MAX_DETAIL, one_line
from kaiwo.plugins.registry import Ordering, Registry
from kaiwo.runtime.loop.learned_state import pack_state
from kaiwo.runtime.loop.price_refresh import are_prices_due, refreshed_prices
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot

TARGET_US = 300_000  # keeps cycles under 400 ms, with some reserve
GROW_BELOW_US = 250_000  # grow in proportion to this: the next steps may be slower than the last
FEWEST = 1_000  # with fewer steps, the fixed cost of a cycle dominates
FIRST = 2_000  # the budget of the first cycle, before anything was measured


class AdaptiveStepBudget:
    """How many steps a cycle may take: at most the policy's, fewer while steps are slow."""

    def __init__(self, most: int) -> None:
        self._most, self._now = most, min(most, FIRST)

    def apply(self, policy: Policy) -> Policy:
        return policy if self._now == policy.steps else replace(policy, steps=self._now)

    def learn(self, steps: int, took_us: int) -> None:
        """Shrink after a cycle that took too long; grow, at most to twice, after a short one that used its steps."""
        if took_us > TARGET_US and steps:
            self._now = max(FEWEST, min(self._now, steps * TARGET_US // took_us))
        elif steps >= self._now and took_us < GROW_BELOW_US:
            self._now = min(self._most, self._now * 2, self._now * GROW_BELOW_US // max(1, took_us))


class CycleSummary(msgspec.Struct, frozen=True):
    number: int
    at_s: int
    starts: int
    evictions: int
    waits: int
    steps: int
    took_us: int
    notes: tuple[Note, ...]
    domains: int = 0  # chosen for work that asks for levels of the network


class Decision(msgspec.Struct, frozen=True):
    plan: Plan
    assumed: tuple[Event, ...]  # the effects of the plan, assumed before the cluster confirms them
    summary: CycleSummary


class CycleRunner:
    def __init__(
        self,
        journal: Journal | None,
        policy: Policy = DEFAULT_POLICY,
        plugins: Registry = BUILTIN,
        is_budget_fixed: bool = False,  # a simulation must not depend on the speed of the machine
    ) -> None:
        self.journal, self.policy, self.plugins = journal, policy, plugins
        self.state = ClusterState(plugins.ordering(policy))
        if policy.share_with:
            self.state.patch([SharingRulesInUse(policy.share_with)])
        self._budget = None if is_budget_fixed else AdaptiveStepBudget(policy.steps)
        self.clock_ns: Callable[[], int] = time.perf_counter_ns  # what the length of a cycle is measured with
        self._number = 0
        self._is_behind = False  # the state does not match the journal's last entry: a base must come first
        self._failed_orders: list[tuple[WorkloadOrder, Note]] = []  # as long as they are registered

    @property
    def is_idle(self) -> bool:
        backlog = self.state.backlog
        is_all = backlog.try_all or self.state.rules_digest != self.plugins.active(self.policy).rules
        is_tried = backlog.to_try or backlog.pending_actions or (is_all and backlog.by_key)
        return not (is_tried or self.state.needs_cycle)

    def use_policy(self, policy: Policy) -> None:
        """Decide by another policy from the next cycle on. A base comes first: the order of the backlog is another."""
        share_with, self.policy = self.policy.share_with, policy
        self.state.use_order(self._ordering())
        if policy.share_with != share_with:
            self.state.patch([SharingRulesInUse(policy.share_with)])
        self._budget = None if self._budget is None else AdaptiveStepBudget(policy.steps)
        self._is_behind = True

    @property
    def is_order_old(self) -> bool:
        """Whether a plugin that orders workloads has come, gone or failed since the backlog was lined up."""
        backlog = self.state.backlog
        return bool(backlog.faults) or not (isinstance(backlog.order, Ordering) and backlog.order.is_of(self._orders()))

    def renew_order(self) -> None:
        """Line the backlog up again, without plugins that failed while work arrived: the next plan says so, and is the
        one without them. A base comes first, as after a change of the policy."""
        self.state.use_order(self._ordering())
        for _ in self._orders():  # all of them may fail, one after the other
            if not (faults := self.state.backlog.faults):
                break
            name = min(faults)
            for plugin, detail in faults[name]:
                note = Note("plugin-set-aside", plugin, one_line(f"{name}: {detail}", MAX_DETAIL))
                self._failed_orders += [(each, note) for each in self._orders() if each.name == plugin]
            self.state.use_order(self._ordering())
        self._is_behind = True

    def _ordering(self) -> Ordering:
        return replace(self.plugins.ordering(self.policy), plugins=self._orders())

    def _orders(self) -> tuple[WorkloadOrder, ...]:
        registered = self.plugins.ordering(self.policy).plugins
        if not self._failed_orders:
            return registered
        self._failed_orders = [
            failed for failed in self._failed_orders if any(failed[0] is each for each in registered)
        ]
        return tuple(each for each in registered if not any(each is failed for failed, _ in self._failed_orders))

    def journal_events(self, events: Sequence[Event]) -> None:
        if self.journal is not None:
            self.journal.batch(events)

    def decide(self, snapshot: Snapshot) -> Decision:
        """Decide, and journal the decision. Only reads the state: safe on a thread while the state does not change."""
        if self.journal is not None and (self.journal.wants_base or self._is_behind):
            self.journal.base(Base(self.state.events(), pack_state(self.state, self.policy, snapshot.now_s)))
        policy = self.policy if self._budget is None else self._budget.apply(self.policy)
        began = self.clock_ns()
        plan = decide(snapshot, policy, self.plugins, [note for _, note in self._failed_orders])
        took_us = (self.clock_ns() - began) // 1000
        if self._budget is not None:
            self._budget.learn(plan.steps, took_us)
        assumed = assume(self.state, plan, snapshot.now_s)
        self._is_behind = True
        number = self._journal_cycle(plan, policy, snapshot.now_s, took_us)
        counts = len(plan.starts), len(plan.evictions), len(plan.waits)
        summary = CycleSummary(
            number, snapshot.now_s, *counts, plan.steps, took_us, plan.notes, domains=len(plan.domains)
        )
        return Decision(plan, assumed, summary)

    def record(self, decision: Decision) -> None:
        """Record the decision in the state, before it is patched with `assumed`."""
        self.state.record_cycle(decision.plan)
        self._is_behind = False

    def cycle(self, now_s: int) -> Decision | None:
        """A whole cycle at once; None when there was nothing to decide."""
        if self.is_order_old:
            self.renew_order()
        snapshot = self.state.snapshot(now_s)
        if self.is_idle:
            return None
        prices = refreshed_prices(self.state) if are_prices_due(self.state, self.policy) else None
        if prices is not None:
            self.state.patch([prices])
            self.journal_events([prices])
            snapshot = self.state.snapshot(now_s)
        decision = self.decide(snapshot)
        self.record(decision)
        self.state.patch(decision.assumed)
        return decision

    def _journal_cycle(self, plan: Plan, policy: Policy, now_s: int, took_us: int) -> int:
        self._number += 1
        if self.journal is None:
            return self._number
        self._number = self.journal.next_number
        setting = Setting(kaiwo.__version__, policy, self.plugins.versions)
        wall_ms = time.time_ns() // 1_000_000
        self.journal.cycle(Cycle.of(plan, setting, number=self._number, now_s=now_s, wall_ms=wall_ms, took_us=took_us))
        return self._number
