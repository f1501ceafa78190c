"""Apply planned partition changes: close GPUs, wait until they are idle, change their modes, and show the result.

A GPU in use is never changed: it is closed first, and changes in a later round, when the cluster's own ledger shows
that it is idle. Every change is saved before anything is touched.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.local.cluster_file import VIRTUAL_LABEL
from kaiwo.devices.amd.change_partitions import ChangeOutcome
from kaiwo.gpus.partitioning.demand import GpuModeState
from kaiwo.gpus.partitioning.planner_types import GpuKey, ModeChangeStep, NodeState, PartitionPlan
from kaiwo.gpus.partitioning.rollout import (
    change_done,
    changed_nodes,
    changes_starting,
    states_after,
    whole_gpu_mib,
    with_closed_devices,
    with_modes_applied,
)
from kaiwo.model.errors import KaiwoError, NotFoundError
from kaiwo.model.gpus.partition_modes import ModeChange
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.nodes.agent_registry import AgentRegistry
from kaiwo.runtime.partitioning.local_machine import LocalMachine
from kaiwo.runtime.partitioning.saved_state import ChangeInProgress

HISTORY = 50
RETRY_S = 300  # after a failed change


class FinishedChange(msgspec.Struct, frozen=True):
    at_s: int
    node: str
    change: ModeChange
    status: str
    reason: str = ""


class Executor(Protocol):
    """Changes the GPUs of one node, as a whole."""

    async def carry_out(self, changes: Sequence[ModeChange]) -> ChangeOutcome:
        """Apply all changes or none."""

    async def resume(self, note: str) -> ChangeOutcome:
        """Continue what a former leader began."""


class ModeChanger:
    """The mode changes of one cluster. `save` stores those in progress."""

    def __init__(
        self,
        live: LiveLoop,
        agents: AgentRegistry,
        saved: Sequence[ChangeInProgress],
        save: Callable[[], Awaitable[None]],
    ) -> None:
        self.live, self.agents, self._save = live, agents, save
        self._devices = live.cluster.abilities.devices
        self.states: dict[GpuKey, GpuModeState] = {(each.node, each.gpu): each.state for each in saved}
        self._sizes: dict[GpuKey, int] = {(each.node, each.gpu): each.size_mib for each in saved}
        self._due_s: dict[GpuKey, int] = {(each.node, each.gpu): each.due_s for each in saved}
        self.history: deque[FinishedChange] = deque(maxlen=HISTORY)
        self.changed: Counter[str] = Counter()  # GPUs by outcome
        self.machine: LocalMachine | None = None  # the machine that Kaiwo runs on
        self.executor_of: Callable[[str], Executor | None] = lambda _: None  # the executor of another real node
        self._running: dict[str, asyncio.Task[ChangeOutcome]] = {}  # by node
        self._resumed = ChangeOutcome("rolled-back", "Kaiwo was stopped before the change began")

    def in_progress(self) -> tuple[ChangeInProgress, ...]:
        return tuple(
            ChangeInProgress(node, gpu, state, self._sizes.get((node, gpu), 0), self._due_s.get((node, gpu), 0))
            for (node, gpu), state in sorted(self.states.items())
        )

    async def resume(self) -> None:
        """Complete or roll back the change that a former Kaiwo left unfinished on this machine."""
        if self.machine is None:
            return
        try:
            outcome = await self.machine.resume()
        except (OSError, KaiwoError) as error:
            outcome = ChangeOutcome("stuck", str(error))
        if outcome is not None:
            self._resumed = outcome
            emit("partition-change-resumed", node=self.machine.node, status=outcome.status, reason=outcome.reason)

    async def apply(self, nodes: Sequence[NodeState], steps: Sequence[ModeChangeStep], now_s: int) -> None:
        """Close the GPUs that the plan names, open those it no longer names, and begin the changes that are ready."""
        before = self.states
        ready = self._ready(steps)
        plan = PartitionPlan(tuple(replace(step, is_due=_key(step) in ready) for step in steps))
        after = states_after(nodes, plan)
        fleet = {(node.name, gpu.id) for node in nodes for gpu in node.gpus}
        known = self.live.state.node_objects
        away = {key: state for key, state in before.items() if key not in fleet and key[0] in known}
        # While a node is away, its changes in progress stay; GPUs that were only closed are open again.
        after |= {key: state for key, state in away.items() if state.is_changing or state.goal is None}
        if after == before:
            return
        self._measure(after)
        fresh = changes_starting(before, after)
        takes_s = {_key(step): step.takes_s for step in steps}
        self._due_s = {key: due for key, due in self._due_s.items() if key in after} | {
            key: now_s + takes_s.get(key, 0) for key in fresh
        }
        self.states = after
        await self._save()
        for name in changed_nodes(before, after):
            await self._show(name)
        for name in sorted({node for node, _ in fresh}):
            self._begin(name, [_change(key, after[key]) for key in fresh if key[0] == name])

    def _ready(self, steps: Sequence[ModeChangeStep]) -> set[GpuKey]:
        """The GPUs that may change now. A memory mode changes on all GPUs of a node at once."""
        ready = {_key(step) for step in steps if step.is_due and self._is_idle(step)}
        memory = {step.node for step in steps if step.change.before.memory != step.change.after.memory}
        for name in memory | {step.node for step in steps if self.executor_of(step.node) is not None}:
            mine = {_key(step) for step in steps if step.node == name}
            if not mine <= ready:
                ready -= mine
        return ready

    def _is_idle(self, step: ModeChangeStep) -> bool:
        state, node = self.states.get(_key(step)), self.live.state.node_objects.get(step.node)
        if node is None or step.node in self._running:
            return False
        if state is None or state.goal != step.change.after or state.is_changing:
            return False
        held = self._devices.devices_in_use(step.node)
        return not any(gpu.id in held for gpu in node.gpus if step.change.gpu in (gpu.id, gpu.parent))

    def _measure(self, states: Mapping[GpuKey, GpuModeState]) -> None:
        for (name, gpu), state in states.items():
            node = self.live.state.node_objects.get(name)
            if state.goal is not None and (name, gpu) not in self._sizes and node is not None:
                self._sizes[name, gpu] = whole_gpu_mib(node, gpu)
        self._sizes = {key: size for key, size in self._sizes.items() if key in states}

    def _begin(self, name: str, changes: Sequence[ModeChange]) -> None:
        emit("partition-change-begun", node=name, gpus=[each.gpu for each in changes], to=changes[0].after.profile)
        executor = self.machine if self._is_here(name) else self.executor_of(name)
        if executor is not None:
            self._running[name] = asyncio.create_task(executor.carry_out(changes))

    async def adopt(self, name: str, changes: Sequence[ModeChange], note: str, now_s: int) -> None:
        other, node = self.executor_of(name), self.live.state.node_objects.get(name)
        if other is None or node is None or name in self._running:
            return
        model = next((gpu.model for gpu in node.gpus), "")
        fresh = {
            (name, each.gpu): GpuModeState(model, each.before, now_s, each.after, is_changing=True) for each in changes
        }
        self.states = self.states | fresh
        self._running[name] = asyncio.create_task(other.resume(note))
        emit("partition-change-resumed", node=name, gpus=[each.gpu for each in changes])
        await self._show(name)

    async def abandon(self) -> None:
        """Another replica leads now; it finds the changes in progress on the nodes and continues them."""
        names = sorted({node for node, _ in self.states})
        for task in self._running.values():
            task.cancel()
        self._running, self.states = {}, {}
        for name in names:
            await self._show(name)

    def failed_lately(self, name: str, now_s: int) -> FinishedChange | None:
        """The last change of a node if it failed within the retry time: it would fail again."""
        last = next((each for each in self.history if each.node == name), None)
        return None if last is None or last.status == "done" or now_s - last.at_s >= RETRY_S else last

    async def finish(self, now_s: int) -> None:
        changing = [key for key, state in self.states.items() if state.is_changing]
        for name in sorted({node for node, _ in changing}):
            keys = [key for key in changing if key[0] == name]
            if self._is_here(name) or name in self._running:
                await self._finish_real(name, keys, now_s)
            elif self._is_virtual(name) and all(self._due_s.get(key, 0) <= now_s for key in keys):
                await self._conclude(name, keys, ChangeOutcome("done"), now_s)

    async def _finish_real(self, name: str, keys: Sequence[GpuKey], now_s: int) -> None:
        task = self._running.get(name)
        if task is not None and not task.done():
            return
        self._running.pop(name, None)
        try:
            outcome = task.result() if task is not None else self._resumed
        except (OSError, KaiwoError) as error:
            outcome = ChangeOutcome("stuck", str(error))
        await self._conclude(name, keys, outcome, now_s)

    async def _conclude(self, name: str, keys: Sequence[GpuKey], outcome: ChangeOutcome, now_s: int) -> None:
        states, is_done = dict(self.states), outcome.status == "done"
        for key in keys:
            state = states[key]
            if state.goal != state.mode:  # the others only had to be idle with it
                self.changed[outcome.status] += 1
                change = FinishedChange(now_s, name, _change(key, state), outcome.status, outcome.reason)
                self.history.appendleft(change)
            # A GPU that was rolled back keeps its mode for a while: otherwise it would be tried again at once.
            states[key] = change_done(state, now_s) if is_done else GpuModeState(state.model, state.mode, now_s)
        self.states = states
        level = "info" if is_done else "warning"
        emit("partition-change-over", level=level, node=name, status=outcome.status, reason=outcome.reason)
        await self._save()
        await self._show(name)

    async def _show(self, name: str) -> None:
        """Update the node in the cluster: GPUs that wait are closed, those that are changing are missing."""
        states, sizes = self.states, dict(self._sizes)
        if self.machine is not None and self.machine.node == name:
            await self.agents.receive(await asyncio.to_thread(self.machine.hello))
            await self.agents.publish_again(name)
        elif self._devices.lists_devices and self.agents.of(name) is not None:
            await self.agents.publish_again(name)
        else:
            with contextlib.suppress(NotFoundError):  # the node is gone
                if self._devices.lists_devices:
                    await self._devices.change_devices(name, lambda node: with_closed_devices(node, states))
                else:
                    await self._devices.change_devices(name, lambda node: with_modes_applied(node, states, sizes))

    def can_change(self, name: str) -> bool:
        return self._is_here(name) or self.executor_of(name) is not None or self._is_virtual(name)

    def _is_here(self, name: str) -> bool:
        return self.machine is not None and self.machine.node == name

    def _is_virtual(self, name: str) -> bool:
        node = self.live.state.node_objects.get(name)
        return not self._devices.lists_devices and (node is None or VIRTUAL_LABEL in node.labels)


def _key(step: ModeChangeStep) -> GpuKey:
    return step.node, step.change.gpu


def _change(key: GpuKey, state: GpuModeState) -> ModeChange:
    return ModeChange(key[1], state.mode, state.goal or state.mode)
