"""The loop that plans partition changes for waiting work and for people's plans, and applies what the policy allows."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from kaiwo.gpus.partitioning.planner_types import ModeChangeStep
from kaiwo.gpus.partitioning.rollout import whole_node_steps, with_closed_devices
from kaiwo.model.errors import RefusedError
from kaiwo.model.gpus.partition_modes import Platform
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.nodes.agent_registry import AgentRegistry
from kaiwo.runtime.partitioning.apply_changes import Executor, ModeChanger
from kaiwo.runtime.partitioning.plan_changes import (
    NodePlanStatus,
    PlannedChanges,
    PlanRequest,
    make_plan,
    read_planner_input,
)
from kaiwo.runtime.partitioning.saved_state import FILE, Policy, SavedState, read_state, write_state

EVERY_S, REST_FACTOR = 1.0, 10  # a long round on a large cluster is followed by a longer rest


class PlanObjects(Protocol):
    """Kubernetes: plans are objects of the cluster, and another manager changes the GPUs."""

    @property
    def leads(self) -> bool:
        """True if this replica may change nodes."""

    def plans(self) -> dict[str, PartitioningPlan]:
        """The plans by name."""

    def executor(self, name: str) -> Executor | None:
        """What changes the GPUs of a node; None: nothing does."""

    async def adopt(self, changer: ModeChanger, now_s: int) -> None:
        """Continue the changes that a former leader began."""

    def note_profiles(self, statuses: Sequence[NodePlanStatus]) -> None:
        """Remember which profile each plan wants on its nodes."""

    async def show(self, statuses: Sequence[NodePlanStatus], changer: ModeChanger, policy: str, now_s: int) -> None:
        """Write the status of each plan."""


class PartitioningLoop:
    """One cluster's partition modes. Lives on the event loop."""

    def __init__(self, live: LiveLoop, agents: AgentRegistry, home: str, policy: str = "") -> None:
        self.live, self.agents = live, agents
        self._path = Path(home) / FILE
        saved = read_state(self._path)
        self.policy: Policy = saved.policy if not policy else msgspec.convert(policy, Policy)
        self.plans: dict[str, PartitioningPlan] = {plan.name: plan for plan in saved.plans}
        self.changer = ModeChanger(live, agents, saved.underway, self._save)
        self.planned = PlannedChanges()
        self.failures = 0
        agents.overlay = lambda node: with_closed_devices(node, self.changer.states)
        self.objects: PlanObjects | None = None  # None: people give their plans to Kaiwo itself

    def use_objects(self, objects: PlanObjects) -> None:
        self.objects, self.changer.executor_of = objects, objects.executor

    async def run(self) -> None:
        """Plan and apply until cancelled."""
        await self.changer.resume()
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                if self.live.ready:
                    await self.run_once()
            except Exception as error:  # one bad round must not stop the loop: it is counted and logged
                self.failures += 1
                emit("partitions-failed", level="error", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(max(EVERY_S, REST_FACTOR * (clock() - began)))

    async def set_policy(self, policy: Policy) -> None:
        self.policy = policy
        await self._save()

    async def put_plans(self, plans: Sequence[PartitioningPlan]) -> list[str]:
        """Returns a word for each plan: created, changed or unchanged."""
        self._refuse_on_kubernetes("kubectl apply takes PartitioningPlans")
        words = []
        for plan in plans:
            before = self.plans.get(plan.name)
            words.append("created" if before is None else "unchanged" if before == plan else "changed")
            self.plans[plan.name] = plan
        await self._save()
        return words

    async def drop_plan(self, name: str) -> bool:
        """Forget a plan; its nodes keep their modes. False if there is no such plan."""
        self._refuse_on_kubernetes("kubectl delete removes PartitioningPlans")
        found = self.plans.pop(name, None) is not None
        await self._save()
        return found

    async def preview(self, plans: Sequence[PartitioningPlan]) -> list[NodePlanStatus]:
        """What these plans would do to each node, next to the plans that exist."""
        dry = {plan.name: replace(plan, is_dry=True, is_paused=False) for plan in plans}
        existing = {name: plan for name, plan in self.plans.items() if not plan.is_dry}
        planned = await self._plan(self.live.cluster.now_s(), tuple((existing | dry).values()))
        return [status for status in planned.statuses if status.plan in dry]

    def _refuse_on_kubernetes(self, way_out: str) -> None:
        if self.objects is not None:
            raise RefusedError(f"this cluster is Kubernetes, which keeps its own objects; {way_out}")

    async def run_once(self) -> None:
        now_s = self.live.cluster.now_s()
        if self.objects is not None:
            self.plans = self.objects.plans()
            if not self.objects.leads:
                await self.changer.abandon()
                return
            await self.objects.adopt(self.changer, now_s)
        await self.changer.finish(now_s)
        is_changing = any(state.goal for state in self.changer.states.values())
        if self.policy == "off" or not (self.live.state.backlog.by_key or self.plans or is_changing):
            self.planned = PlannedChanges(now_s)
        else:
            self.planned = await self._plan(now_s, tuple(self.plans.values()))
        if self.objects is not None:
            self.objects.note_profiles(self.planned.statuses)
        await self.changer.apply(self.planned.nodes, self._allowed_steps(now_s), now_s)
        if self.objects is not None:
            await self.objects.show(self.planned.statuses, self.changer, self.policy, now_s)

    def _allowed_steps(self, now_s: int) -> list[ModeChangeStep]:
        changer = self.changer
        nodes = {step.node for step in self.planned.steps} if self.policy == "on" else set()
        able = {name for name in nodes if changer.can_change(name) and not changer.failed_lately(name, now_s)}
        steps = [step for step in self.planned.steps if step.node in able]
        return whole_node_steps(
            self.planned.nodes, steps, {name for name in able if changer.executor_of(name) is not None}
        )

    async def _plan(self, now_s: int, plans: tuple[PartitioningPlan, ...]) -> PlannedChanges:
        """The cluster state is frozen only while it is read; planning does not hold up the scheduler."""
        request = PlanRequest(now_s, dict(self.changer.states), plans, self._platforms())
        facts = await self.live.ask(lambda state: read_planner_input(state, request))
        return await asyncio.to_thread(make_plan, facts, request)

    def _platforms(self) -> dict[str, Platform]:
        found: dict[str, Platform] = {}
        for agent in self.agents:
            platform = next((gpu.platform for gpu in agent.inventory.gpus if gpu.platform), "")
            if platform in ("bare-metal", "vf", "apu"):
                found[agent.node] = platform  # type: ignore[assignment]
        return found

    async def _save(self) -> None:
        state = SavedState(self.policy, tuple(self.plans.values()), self.changer.in_progress())
        await asyncio.to_thread(write_state, self._path, state)
