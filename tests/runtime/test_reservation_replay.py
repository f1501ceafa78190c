"""Cycles in which reservations begin, end and pick, and in which allocations expire, replay to the byte."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.decide.cycle import BUILTIN
from kaiwo.history import Journal
from kaiwo.model.events import Event, PodChanged, PodGone
from kaiwo.model.workload import Phase
from kaiwo.runtime.loop.cycle_runner import CycleRunner, Decision
from kaiwo.runtime.loop.learned_state import pack_state, unpack_state
from kaiwo.runtime.loop.replay import replay
from tests.properties.reserved_worlds import ReservedWorld
from tests.worlds import World


class JournaledWorld(World):
    """What happens, happens to a scheduler's picture, and is in its journal."""

    def __init__(self, scheduler: CycleRunner) -> None:
        self._scheduler = scheduler
        super().__init__(nodes=0)
        self.state = scheduler.state

    def tell(self, *events: Event) -> "World":
        self._scheduler.state.patch(events)
        self._scheduler.journal_events(events)
        return self

    def carry_out(self, decision: Decision) -> None:
        """What was started runs, and who was told to go is gone."""
        begun = [each.pod for each in decision.assumed if isinstance(each, PodChanged)]
        self.tell(*(PodChanged(replace(pod, phase=Phase.RUNNING)) for pod in begun if pod.phase is Phase.ASSUMED))
        self.tell(*(PodGone(each.workload, each.pod) for each in decision.plan.evictions))


@pytest.mark.parametrize("segment_bytes", [1, 4_000, 2**23])
def test_a_story_with_reservations_replays_to_the_same_plans(tmp_path: Path, segment_bytes: int) -> None:
    decisions: list[Decision] = []
    for seed in range(6):
        home = tmp_path / str(seed)
        with Journal(home / "journal", segment_bytes=segment_bytes) as journal:
            made = _tell_a_story(seed, CycleRunner(journal))
        for decision in made:
            result = replay(str(home), decision.summary.number)
            assert result.is_same, (seed, decision.summary.number, result.then, result.now)
        decisions += made
    causes = {each.cause.value for decision in decisions for each in decision.plan.evictions}
    assert {"reservation", "expired"} <= causes
    assert sum(len(decision.plan.reserved) for decision in decisions) > 3


def _tell_a_story(seed: int, scheduler: CycleRunner) -> list[Decision]:
    world = JournaledWorld(scheduler)
    story = ReservedWorld(seed, world)
    made = []
    for _ in range(40):
        story.step()
        decision = scheduler.cycle(world.now_s)
        if decision is not None:
            world.carry_out(decision)
            made.append(decision)
    return made


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_first_cycle_that_work_made_due_which_is_gone_replays_to_the_same_plan(tmp_path: Path, is_gone: bool) -> None:
    with Journal(tmp_path / "journal") as journal:
        scheduler = CycleRunner(journal)
        world = JournaledWorld(scheduler)
        world.queue("default").node("node-0")
        world.submit("held", gpus_each=1, held=True).submit("brief", gpus_each=1, held=True, expires_s=1_000)
        if is_gone:
            world.finish("brief")
        decision = scheduler.cycle(now_s=5)
    assert decision is not None
    result = replay(str(tmp_path), decision.summary.number)
    assert result.then.rules != ""
    assert result.is_same, (result.then, result.now)


def test_a_base_says_when_nothing_is_due_any_more(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", segment_bytes=1) as journal:
        scheduler = CycleRunner(journal)
        world = JournaledWorld(scheduler)
        world.queue("default").node("node-0").submit("brief", gpus_each=1, held=True, expires_s=1_000)
        assert scheduler.cycle(now_s=5) is not None
        assert not scheduler.state.is_cycle_due
    state = pack_state(scheduler.state, scheduler.policy, 5)
    assert unpack_state(scheduler.state.events(), state, BUILTIN).is_cycle_due is False
