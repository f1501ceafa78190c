"""Find the obstacles of waiting classes as of now: a cycle names them once, and its numbers grow old later."""

from functools import cached_property

import msgspec

from kaiwo.decide.make_room.preemption_cooldown import COOLDOWN_REASONS, cooldown_of
from kaiwo.decide.obstacles.find_obstacles import ObstacleFinder, with_verdicts
from kaiwo.decide.placement.shape_scores import ShapeScores
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.plugins.registry import ActivePlugins
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working_copy import WorkingCopy

# Only a whole cycle finds why no room is made: what the last one found is taken.
_FOUND_BY_CYCLES = (
    Reason.OVER_FAIR_SHARE,
    Reason.NOT_ENOUGH_RECLAIMABLE,
    Reason.NO_WAY_TO_RECLAIM,
    Reason.NO_WAY_TO_PREEMPT,
)


class CurrentObstacles:
    """The obstacles in one state of the cluster; equal needs are examined once."""

    def __init__(self, state: ClusterState, active: ActivePlugins, policy: Policy, now_s: int) -> None:
        self._state, self._active, self._policy, self._now_s = state, active, policy, now_s

    def of_class(self, found: WaitingClass) -> tuple[Obstacle, ...]:
        """For a class that was tried; a cool-down is that which the cycle found."""
        if _needs_a_cycle(found):
            return found.obstacles
        kept = (*_FOUND_BY_CYCLES, *COOLDOWN_REASONS)
        return self._with_verdicts(found, [each for each in found.obstacles if each.reason in kept])

    def of_workload(self, found: WaitingClass, workload: Workload) -> tuple[Obstacle, ...]:
        """The same for one workload of the class, with the time left of its own cool-down."""
        if _needs_a_cycle(found):
            return found.obstacles
        verdicts = [each for each in found.obstacles if each.reason in _FOUND_BY_CYCLES]
        cooldown = cooldown_of(self._state, workload, self._policy, self._now_s)
        if cooldown is not None and any(each.reason in COOLDOWN_REASONS for each in found.obstacles):
            # The cycle names the cool-down of one workload in the class; each has its own.
            verdicts.append(msgspec.structs.replace(cooldown.obstacle, need=cooldown.until_s - self._now_s))
        return self._with_verdicts(found, verdicts)

    def _with_verdicts(self, found: WaitingClass, verdicts: list[Obstacle]) -> tuple[Obstacle, ...]:
        return with_verdicts(found, self._finder.obstacles(found), tuple(verdicts))

    @cached_property
    def _finder(self) -> ObstacleFinder:
        working = WorkingCopy(Snapshot(self._state, self._now_s))
        scores = ShapeScores(self._state, working.view, working, self._active)
        return ObstacleFinder(self._state, self._active, scores)


def _needs_a_cycle(found: WaitingClass) -> bool:
    """Nodes have room that a planned start needs: only a whole cycle finds that."""
    return any(each.reason is Reason.PROMISED for each in found.obstacles)
