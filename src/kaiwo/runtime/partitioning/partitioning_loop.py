"""The loop that changes partition modes: look at who waits, plan, and follow the plan where the policy lets it.

In:    the live picture, the policy (off, dry-run, on), what people want.   Out: what is planned, for views.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from kaiwo.gpus.partitioning.planner_types import ModeChangeStep
from kaiwo.gpus.partitioning.rollout import whole_node_steps, with_closed_devices
from kaiwo.model.errors import RefusedError
from kaiwo.model.partition_modes import Platform
from kaiwo.model.partitioning_plan import PartitioningPlan
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.loop_protocol import Live
from kaiwo.runtime.nodes.agent_registry import Agents
from kaiwo.runtime.partitioning.apply_changes import Executor, Following
from kaiwo.runtime.partitioning.plan_changes import Look, NodeStand, Question, make_plan, see
from kaiwo.runtime.partitioning.saved_state import FILE, Kept, Policy, read_kept, write_kept

EVERY_S, REST_FACTOR = 1.0, 10  # a look at a large cluster is followed by a longer rest


class PlanObjects(Protocol):
    """Plans that are objects of the cluster, and nodes whose GPUs another manager changes: Kubernetes."""

    @property
    def leads(self) -> bool:
        """This replica is the one that changes nodes."""

    def plans(self) -> dict[str, PartitioningPlan]:
        """The plans by name."""

    def executor(self, name: str) -> Executor | None:
        """What changes the GPUs of a node; None: nothing does."""

    async def adopt(self, following: Following, now_s: int) -> None:
        """Continue the changes that a former leader began."""

    def note_profiles(self, stands: Sequence[NodeStand]) -> None:
        """Remember which profile each plan wants on its nodes."""

    async def show(self, stands: Sequence[NodeStand], following: Following, policy: str, now_s: int) -> None:
        """Write the status of each plan."""


class Partitions:
    """One cluster's partition modes. Lives on the event loop."""

    def __init__(self, live: Live, agents: Agents, home: str, policy: str = "") -> None:
        self.live, self.agents = live, agents
        self._path = Path(home) / FILE
        kept = read_kept(self._path)
        self.policy: Policy = kept.policy if not policy else msgspec.convert(policy, Policy)
        self.plans: dict[str, PartitioningPlan] = {plan.name: plan for plan in kept.plans}
        self.following = Following(live, agents, kept.underway, self._keep)
        self.look = Look()
        self.failures = 0
        agents.overlay = lambda node: with_closed_devices(node, self.following.states)
        self.objects: PlanObjects | None = None  # None: people give their plans to Kaiwo itself

    def use_objects(self, objects: PlanObjects) -> None:
        """Take plans from the cluster's objects from now on."""
        self.objects, self.following.others = objects, objects.executor

    async def run(self) -> None:
        """For ever."""
        await self.following.resume()
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                if self.live.ready:
                    await self.turn()
            except Exception as error:  # a loop's edge: one bad turn must not end the product; it is counted and told
                self.failures += 1
                emit("partitions-failed", level="error", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(max(EVERY_S, REST_FACTOR * (clock() - began)))

    async def set_policy(self, policy: Policy) -> None:
        """Let modes change, only plan, or do neither."""
        self.policy = policy
        await self._keep()

    async def put_plans(self, plans: Sequence[PartitioningPlan]) -> list[str]:
        """Take what people want. Returns a word for each: created, changed or unchanged."""
        self._refuse_here("kubectl apply takes PartitioningPlans")
        words = []
        for plan in plans:
            before = self.plans.get(plan.name)
            words.append("created" if before is None else "unchanged" if before == plan else "changed")
            self.plans[plan.name] = plan
        await self._keep()
        return words

    async def drop_plan(self, name: str) -> bool:
        """The nodes stay as they are. False: there was none."""
        self._refuse_here("kubectl delete removes PartitioningPlans")
        found = self.plans.pop(name, None) is not None
        await self._keep()
        return found

    async def preview(self, plans: Sequence[PartitioningPlan]) -> list[NodeStand]:
        """What these plans would do to each node, if they were given now beside those that are there."""
        dry = {plan.name: replace(plan, is_dry=True, is_paused=False) for plan in plans}
        beside = {name: plan for name, plan in self.plans.items() if not plan.is_dry}
        every = tuple((beside | dry).values())
        asked = Question(self.live.cluster.now_s(), dict(self.following.states), every, self._platforms())
        return [stand for stand in (await self._plan(asked)).stands if stand.plan in dry]

    def _refuse_here(self, way_out: str) -> None:
        if self.objects is not None:
            raise RefusedError(f"this cluster is Kubernetes, which keeps its own objects; {way_out}")

    async def turn(self) -> None:
        """Once around."""
        now_s = self.live.cluster.now_s()
        if self.objects is not None:
            self.plans = self.objects.plans()
            if not self.objects.leads:
                await self.following.abandon()
                return
            await self.objects.adopt(self.following, now_s)
        await self.following.finish(now_s)
        if self.policy == "off" or not self._has_matter():
            self.look = Look(now_s)
        else:
            asked = Question(now_s, dict(self.following.states), tuple(self.plans.values()), self._platforms())
            self.look = await self._plan(asked)
        if self.objects is not None:
            self.objects.note_profiles(self.look.stands)
        await self.following.follow(self.look.nodes, self._allowed_steps(now_s), now_s)
        if self.objects is not None:
            await self.objects.show(self.look.stands, self.following, self.policy, now_s)

    def _allowed_steps(self, now_s: int) -> list[ModeChangeStep]:
        """Those that the policy lets happen where somebody can make them, and where they did not fail a moment ago."""
        following = self.following
        nodes = {step.node for step in self.look.steps} if self.policy == "on" else set()
        able = {name for name in nodes if following.can_change(name) and not following.failed_lately(name, now_s)}
        steps = [step for step in self.look.steps if step.node in able]
        return whole_node_steps(self.look.nodes, steps, {name for name in able if following.others(name) is not None})

    async def _plan(self, asked: Question) -> Look:
        """The picture stands still only while it is read; the planning goes on beside the scheduler."""
        seen = await self.live.ask(lambda state: see(state, asked))
        return await asyncio.to_thread(make_plan, seen, asked)

    def _has_matter(self) -> bool:
        is_underway = any(state.goal for state in self.following.states.values())
        return bool(self.live.state.backlog.by_key or self.plans or is_underway)

    def _platforms(self) -> dict[str, Platform]:
        found: dict[str, Platform] = {}
        for heard in self.agents:
            platform = next((gpu.platform for gpu in heard.inventory.gpus if gpu.platform), "")
            if platform in ("bare-metal", "vf", "apu"):
                found[heard.node] = platform  # type: ignore[assignment]
        return found

    async def _keep(self) -> None:
        kept = Kept(self.policy, tuple(self.plans.values()), self.following.underway())
        await asyncio.to_thread(write_kept, self._path, kept)
