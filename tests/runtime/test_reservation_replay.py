"""Cycles in which reservations begin, end and pick, and in which allocations expire, replay to the byte."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.history import Journal
from kaiwo.model.event import Event, PodChanged, PodGone
from kaiwo.model.workload import Phase
from kaiwo.runtime.replay import replay
from kaiwo.runtime.scheduler import Decision, Scheduler
from tests.properties.reserved_worlds import ReservedWorld
from tests.worlds import World


class JournaledWorld(World):
    """What happens, happens to a scheduler's picture, and is in its journal."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        super().__init__(nodes=0)
        self.picture = scheduler.picture

    def tell(self, *events: Event) -> "World":
        self._scheduler.picture.patch(events)
        self._scheduler.note(events)
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
            made = _tell_a_story(seed, Scheduler(journal))
        for decision in made:
            result = replay(str(home), decision.summary.number)
            assert result.is_same, (seed, decision.summary.number, result.then, result.now)
        decisions += made
    causes = {each.cause.value for decision in decisions for each in decision.plan.evictions}
    assert {"reservation", "expired"} <= causes
    assert sum(len(decision.plan.reserved) for decision in decisions) > 3


def _tell_a_story(seed: int, scheduler: Scheduler) -> list[Decision]:
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
