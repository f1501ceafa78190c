"""Where `why` says that nobody is stopped for another size, model or queue, nobody is; and what it names is served."""

from collections.abc import Iterator

import pytest

from kaiwo.explain import why
from kaiwo.explain.changes_that_evict import change_that_evicts, may_evict_others
from kaiwo.explain.possible_changes import ChangeKind, PossibleChange, events_of
from kaiwo.explain.verify_change import WhatIf
from kaiwo.model.events import WorkloadGone
from tests.conftest import IS_QUICK, SIZE
from tests.explain.exhaustive_search import every_change, is_submitted_again, submitted_again
from tests.explain.generated_worlds import contested_world
from tests.worlds import World

CYCLES = 3
NOTHING_EVICTED = "No work would be evicted for it with another size, model or queue either."
STEP = 4_000  # milli, of raises, which are not looked at here


def without_an_answer(count: int) -> Iterator[tuple[int, World, str, str]]:
    """Worlds with one who waits and whom no single change starts, and what is said of that."""
    seed = found = 0
    while found < count:
        seed += 1
        world = contested_world(seed)
        waiting = [name for name in sorted(world.state.backlog.queued_names()) if not world.is_running(name)]
        for name in waiting[:2]:
            answer = why(world.state, name, world.policy, world.now_s)
            if answer.change is None and may_evict_others(WhatIf(world.state, name, world.policy, world.now_s)):
                found += 1
                yield seed, world, name, answer.no_change


@pytest.mark.slow
def test_where_nobody_is_said_to_be_stopped_for_another_form_of_it_nobody_is() -> None:
    nobody = 0
    for seed, world, name, said in without_an_answer(150 * SIZE):
        if not said.endswith(NOTHING_EVICTED):
            assert " But if you " in said or "was not tried" in said, (seed, name, said)
            continue
        nobody += 1
        for change in filter(is_submitted_again, every_change(world, name, STEP)):
            assert not _is_served_after(world, name, change), (seed, name, change)
    assert nobody


def test_for_whatever_form_of_it_is_named_others_are_stopped() -> None:
    kinds = set()
    for seed, world, name, _ in without_an_answer(40 if IS_QUICK else 200 * SIZE):
        change = change_that_evicts(WhatIf(world.state, name, world.policy, world.now_s)).change
        if change is not None:
            kinds.add(change.kind)
            assert _is_served_after(world, name, change), (seed, name, change)
    assert IS_QUICK or kinds == {ChangeKind.SMALLER_SIZE, ChangeKind.OTHER_MODEL, ChangeKind.OTHER_QUEUE}


def _is_served_after(world: World, name: str, change: PossibleChange) -> bool:
    """Cancelled and submitted again, on a fork with whole cycles: it runs, or space is kept for it."""
    fork = World(nodes=0, policy=world.policy)
    fork.state, fork.now_s = world.state.fork(), world.now_s
    (told,) = events_of(fork.state, fork.state.workloads[name], change)
    fork.tell(WorkloadGone(name)).decide()
    fork.tell(submitted_again(told, fork.now_s))
    for _ in range(CYCLES):
        fork.let_go().decide()
        if fork.is_running(name) or name in fork.state.nominations:
            return True
    return False
