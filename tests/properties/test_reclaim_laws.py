"""Reclaim and preemption end, protect what they must, and the work that they make room for starts."""

from collections import Counter
from collections.abc import Callable

import pytest

from kaiwo.model.plan import Eviction, EvictionCause, Plan
from kaiwo.model.workload import Phase
from kaiwo.queues.current_shares import current_shares
from kaiwo.queues.reclaim_rules import QueueShares
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.conftest import IS_QUICK, SIZE
from tests.properties.reclaim_worlds import contended_world, tight_world
from tests.worlds import World, audit

STATES = 100 if IS_QUICK else 1_000 * SIZE
CYCLES = 50


class Watch:
    """One world after its last arrival, and every law that it breaks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.evictions: list[Eviction] = []
        self._waits_since: dict[
            str, int
        ] = {}  # whoever room was made for, from the cycle in which its victims are gone

    def play(self) -> Plan:
        """Cycles until nothing happens; whoever is told to go is gone before the next one."""
        plan = Plan()
        for number in range(CYCLES):
            now = current_shares(WorkingCopy(self.world.snapshot()).view)
            now = now._replace(used=now.used.copy())
            plan = self.world.decide()
            assert not audit(self.world.state), audit(self.world.state)
            self._check_victims(plan, now)
            self._check_beneficiaries(plan, number)
            if plan.is_empty and not plan.unfinished:
                break
            self.world.let_go()
        assert plan.is_empty, "evictions and starts never end"
        assert not self._waits_since, self._waits_since
        return plan

    def _check_victims(self, plan: Plan, now: QueueShares) -> None:
        moved = {(each.workload, each.pod) for each in plan.nominations}
        pairs = {(each.workload, each.beneficiary) for each in self.evictions}
        for each in plan.evictions:
            victim = self.world.state.workloads[each.workload]
            assert victim.preemptible, each
            assert (each.beneficiary, each.workload) not in pairs, f"to and fro: {each}"
            if each.cause is EvictionCause.RECLAIM and (each.workload, each.pod) not in moved:
                row = now.queues.row[victim.queue]
                assert (now.used[row] > now.quota[row]).any(), f"within its quota: {each}"
        self.evictions += plan.evictions

    def _check_beneficiaries(self, plan: Plan, number: int) -> None:
        for start in plan.starts:
            self._waits_since.pop(start.workload, None)
        for each in plan.evictions:
            if each.beneficiary:
                self._waits_since.setdefault(each.beneficiary, number + 1)
        late = [name for name, since in self._waits_since.items() if number - since >= 3]
        assert not late, f"still waits three cycles after its victims are gone: {late}"

    def check_end(self) -> None:
        """Gangs run whole or not at all; what may not be preempted is inside every quota."""
        for name, pods in self.world.state.pods.items():
            needed = sum(role.needed for role in self.world.state.workloads[name].roles)
            assert sum(pod.phase in (Phase.RUNNING, Phase.ASSUMED) for pod in pods.values()) >= needed, name
        queues = self.world.state.queues
        assert (queues.non_preemptible <= queues.quota).all()


@pytest.mark.slow
@pytest.mark.parametrize("make", [contended_world, tight_world])
def test_reclaim_and_preemption_keep_their_laws(make: Callable[[int], World]) -> None:
    causes = Counter[str]()
    for seed in range(STATES):
        try:
            watch = Watch(make(seed))
            watch.play()
            watch.check_end()
        except AssertionError as error:
            raise AssertionError(f"state {seed}: {error}") from error
        causes.update(each.cause for each in watch.evictions)
    assert causes[EvictionCause.RECLAIM] > STATES / 10, causes
    assert causes[EvictionCause.PREEMPT] > STATES / 50, causes


def test_no_victim_twice_within_its_minimum_run_time() -> None:
    """With the clock running: a queue's work runs at least so long before another queue may stop it again."""
    for seed in range(20 if IS_QUICK else 100 * SIZE):
        world: World = contended_world(seed)
        stopped_s: dict[tuple[str, str], int] = {}  # by pod: what a workload can spare goes first, and the rest later
        for _ in range(20):
            world.now_s += 7
            plan = world.decide()
            tree = world.state.queues.tree
            for each in plan.evictions:
                if each.cause is not EvictionCause.RECLAIM:
                    continue
                row = world.state.queues.row[world.state.workloads[each.workload].queue]
                if (at_s := stopped_s.get((each.workload, each.pod))) is not None:
                    assert world.now_s - at_s >= tree.min_runtime_s[row], (seed, each)
                stopped_s[each.workload, each.pod] = world.now_s
            world.let_go()
