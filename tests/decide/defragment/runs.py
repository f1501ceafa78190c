"""Defragmentation runs in small worlds: put a plan into the cluster state, and carry it out cycle by cycle."""

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.defragment.plan_moves import plan_room_for_waiting
from kaiwo.model.defragmentation import (
    DefragmentationGoal,
    DefragmentationRun,
    MovePlan,
    MoveState,
    MoveStep,
    RunState,
    StepProgress,
)
from kaiwo.model.events import DefragmentationChanged
from kaiwo.model.plan import EvictionCause, Plan
from tests.worlds import World, audit


def plan_for_waiting(world: World, most_moves: int = 100) -> MovePlan:
    return plan_room_for_waiting(world.state.fork().snapshot(world.now_s), world.policy, BUILTIN, most_moves)


def begin(world: World, steps: tuple[MoveStep, ...], name: str = "run-1") -> World:
    return world.tell(
        DefragmentationChanged(DefragmentationRun(name, DefragmentationGoal(), steps, "ann", world.now_s))
    )


def abort(world: World) -> World:
    run = run_of(world)
    return world.tell(
        DefragmentationChanged(DefragmentationRun(run.name, run.goal, run.steps, state=RunState.ABORTING))
    )


def run_of(world: World) -> DefragmentationRun:
    run = world.state.defragmentation.run
    assert run is not None
    return run


def progress(world: World) -> list[StepProgress]:
    return list(world.state.defragmentation.steps())


def states(world: World) -> list[MoveState]:
    return [move.state for step in progress(world) for move in step.moves]


def moved_by(plan: Plan) -> list[str]:
    return sorted(f"{each.workload}/{each.pod}" for each in plan.evictions if each.cause is EvictionCause.DEFRAGMENT)


def carry_on(world: World, cycles: int = 50) -> list[Plan]:
    """Cycles, in each of which what was told to go is gone, until the run is over; capacity holds at every moment."""
    plans: list[Plan] = []
    while not run_of(world).is_over:
        assert len(plans) < cycles, f"the run never ends: {progress(world)}"
        plans.append(world.decide())
        assert not audit(world.state)
        world.let_go()
        world.now_s += 1
    world.settle()
    return plans
