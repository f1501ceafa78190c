"""Plans of moves that people asked for, the run that carries one out, and its progress."""

import asyncio
import hashlib
from collections import OrderedDict
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.protocol import MoveControl
from kaiwo.model.defragmentation import DefragmentationGoal, DefragmentationRun, GoalKind, Move, MovePlan, StepProgress
from kaiwo.model.errors import ConfigError, NotFoundError, RefusedError
from kaiwo.runtime.defragmentation.plan_worker import PlanJob
from kaiwo.runtime.loop.learned_state import pack_state
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.loop.worker_question import WorkerQuestion, ask_worker
from kaiwo.snapshot.cluster_state import ClusterState

WORKER = WorkerQuestion("kaiwo.runtime.defragmentation.plan_worker", "planning the moves", 150.0)
KEPT_PLANS = 8
NAME_LENGTH = 6


class NamedPlan(NamedTuple):
    name: str  # plans with the same moves have the same name
    as_of_s: int
    plan: MovePlan


class RunStatus(NamedTuple):
    run: DefragmentationRun
    progress: tuple[StepProgress, ...]


class Defragmentation:
    def __init__(self, live: LiveLoop) -> None:
        self._live = live
        self._lock = asyncio.Lock()  # one plan at a time
        self._plans: OrderedDict[str, NamedPlan] = OrderedDict()

    @property
    def control(self) -> MoveControl:
        found = self._live.cluster.abilities.moves
        if found is None:
            raise RefusedError("this cluster cannot move work")
        return found

    async def plan(self, goal: DefragmentationGoal) -> NamedPlan:
        """What moves would bring now; nothing is changed. The last few plans are kept, so that one can be run."""
        live, now_s = self._live, self._live.cluster.now_s()
        self._check(goal)

        def job_of(state: ClusterState) -> bytes:
            job = PlanJob(state.events(), pack_state(state, live.policy, now_s), now_s, live.policy, goal)
            return msgspec.msgpack.encode(job)

        async with self._lock:
            answer = await ask_worker(WORKER, await live.ask(job_of))
        plan = msgspec.msgpack.decode(answer, type=MovePlan)
        name = hashlib.sha256(msgspec.msgpack.encode((goal, _moves_of(plan)))).hexdigest()[:NAME_LENGTH]
        found = NamedPlan(name, now_s, plan)
        self._plans.pop(name, None)
        self._plans[name] = found
        while len(self._plans) > KEPT_PLANS:
            self._plans.popitem(last=False)
        return found

    def known(self, name: str) -> NamedPlan:
        if name not in self._plans:
            raise NotFoundError(f"no plan {name} is known any more; make one with: kaiwo defrag plan")
        return self._plans[name]

    async def start(self, found: NamedPlan, who: str) -> DefragmentationRun:
        if not found.plan.steps:
            raise RefusedError("no move would help, so there is nothing to run; kaiwo defrag plan says why")
        name = f"{found.name}-{self._live.cluster.now_s()}"
        return await self.control.start(DefragmentationRun(name, found.plan.goal, found.plan.steps), who)

    async def abort(self, who: str) -> DefragmentationRun:
        return await self.control.abort(who)

    def status(self) -> RunStatus | None:
        """As the scheduler knows it; None: nothing has run yet."""
        known = self._live.state.defragmentation
        return RunStatus(known.run, tuple(known.steps())) if known.run is not None else None

    def _check(self, goal: DefragmentationGoal) -> None:
        state = self._live.state
        if goal.kind is GoalKind.WORKLOAD and goal.workload not in state.workloads:
            raise NotFoundError(f"no workload '{goal.workload}' is waiting; kaiwo get workloads lists them")
        if goal.kind is GoalKind.WORKLOAD and not state.backlog.is_queued(goal.workload):
            raise RefusedError(f"{goal.workload} does not wait for room; kaiwo why says what it waits for")
        if goal.kind is GoalKind.NODES and goal.nodes < 1:
            raise ConfigError("freeNodes must be 1 or more")


def _moves_of(plan: MovePlan) -> list[tuple[Move, ...]]:
    """Without the work that they lose, which changes from second to second."""
    return [tuple(replace(move, lost_gpu_s=0) for move in step.moves) for step in plan.steps]
