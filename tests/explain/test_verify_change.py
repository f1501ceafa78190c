"""Trying a change leaves no trace, neither in the picture nor for the next change."""

from msgspec.structs import replace

from kaiwo.explain.possible_changes import ChangeKind, PossibleChange, held_by
from kaiwo.explain.verify_change import WhatIf
from kaiwo.model.events import PodChanged
from kaiwo.model.workload import Phase
from kaiwo.snapshot.cluster_state import ClusterState
from tests.conftest import SIZE
from tests.explain.generated_worlds import waiting_world
from tests.worlds import World


def test_after_a_trial_everything_is_as_before() -> None:
    for seed in range(1, 30 * SIZE):
        world = waiting_world(seed)
        state = world.state
        waiting = [name for name in sorted(state.backlog.queued_names()) if name not in state.pods]
        if not waiting or state.backlog.try_all:
            continue
        what_if = WhatIf(state, waiting[0], world.policy, world.now_s)
        before, fork = state_of(state), what_if._fork
        for name in sorted(state.pods):
            if held_by(state, name) and name in state.workloads:
                what_if.outcome_after(PossibleChange(ChangeKind.STOP, "admin", name))
                assert state_of(fork) == before, (seed, name)
        what_if.outcome_after(PossibleChange(ChangeKind.OTHER_QUEUE, "researcher", "prod"))
        assert state_of(fork) == before == state_of(state), seed


def test_what_was_kept_for_a_workload_that_is_stopped_in_a_trial_is_kept_again() -> None:
    world = World(nodes=2, gpus_per_node=1).running("victim", gpus=1)
    world.submit("owner", pods=2, minimum=1, gpus_each=1).settle()
    victim = world.state.pods["default/victim"]["main-0"]
    world.tell(PodChanged(replace(victim, phase=Phase.RELEASING))).settle()
    world.submit("new", pods=2, gpus_each=1).settle()
    assert list(world.state.nominations) == ["default/owner"]
    what_if = WhatIf(world.state, "default/new", world.policy, world.now_s)
    before = state_of(what_if._fork)
    assert not what_if.starts_after(PossibleChange(ChangeKind.STOP, "admin", "default/owner"))
    assert state_of(what_if._fork) == before


def test_leaving_out_what_gets_no_turn_changes_no_outcome() -> None:
    left_out = 0
    for seed in range(1, 60 * SIZE):
        world = waiting_world(seed)
        state = world.state
        names = [name for name in sorted(state.backlog.queued_names()) if name not in state.pods][:3]
        stops = [name for name in sorted(state.pods) if held_by(state, name) and name in state.workloads]
        for name in names:
            quick = WhatIf(state, name, world.policy, world.now_s)
            whole = WhatIf(state, name, world.policy, world.now_s)
            whole.__dict__["_barred_now"] = frozenset()
            for stopped in stops:
                change = PossibleChange(ChangeKind.STOP, "admin", stopped)
                left_out += len(quick._barred_after(change))
                assert quick.outcome_after(change) == whole.outcome_after(change), (seed, name, stopped)
    assert left_out > 100 * SIZE


def state_of(state: ClusterState) -> tuple[object, ...]:
    """All that `decide` looks at."""
    state.refresh_tables()
    nodes, queues, backlog = state.nodes, state.queues, state.backlog
    arrays = [nodes.free.tolist(), nodes.gpus.tolist(), queues.used.tolist(), queues.non_preemptible.tolist()]
    waiting = {queue: asks for queue, asks in backlog.all_demand.items() if any(asks)}
    return state.events(), arrays, sorted(backlog.by_key), sorted(backlog.to_try), backlog.try_all, waiting
