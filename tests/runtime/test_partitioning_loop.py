"""The partition loop: modes follow those who wait, never under a running pod, and nothing is lost over a restart."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.devices.amd.change_partitions import ChangeRecord, write_record
from kaiwo.devices.amd.partition_mode_writers import SysfsModeWriter
from kaiwo.devices.discover import discover
from kaiwo.gpus.partitioning.pending_mode_change import pending_change
from kaiwo.history import Journal
from kaiwo.model.affinity import NodeRule
from kaiwo.model.errors import ConfigError, RefusedError
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan, PlanRule, Rollout
from kaiwo.model.node import Node, Taint
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import Program
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from kaiwo.runtime.nodes.agent_registry import AgentRegistry
from kaiwo.runtime.nodes.local_node import devices_of
from kaiwo.runtime.partitioning.local_machine import LocalMachine
from kaiwo.runtime.partitioning.partitioning_loop import PartitioningLoop
from kaiwo.runtime.partitioning.saved_state import read_state
from kaiwo.runtime.partitioning.wait_sentences import wait_sentence
from tests.clusters.kinds import put_queue
from tests.devices.amd.fake_amdgpu_driver import Kernel
from tests.devices.amd_trees import address
from tests.waiting import PATIENCE_S, until

CPX, WHOLE = Request(gpus=1, partition="CPX"), Request(gpus=1)
Story = Callable[["Play"], Awaitable[None]]


def node(name: str, gpus: int = 4, **more: Any) -> Node:
    devices = tuple(Gpu(f"gpu-{number}", "MI300X", 196_608) for number in range(gpus))
    labels = {"kaiwo.ai/virtual": "true", "pool": name}
    return Node(name, 640_000, 655_360, pods=500, gpus=devices, labels=labels, **more)


class ObservedLoop(SchedulingLoop):
    """Says whether it waits for work: then every event that it read is applied, and no cycle runs."""

    is_waiting = False

    async def _wait_for_work(self) -> None:
        self.is_waiting = True
        await super()._wait_for_work()
        self.is_waiting = False


def change_of(gpu: Gpu) -> str:
    change = pending_change(gpu)
    return change.state if change else ""


class Play:
    """A cluster, its loop and the partition loop, whose turns the test takes itself."""

    def __init__(self, folder: Path, nodes: list[Node], policy: str = "on") -> None:
        self.folder = folder
        self.cluster = SimulatedCluster(nodes)
        self.loop = ObservedLoop(self.cluster, Journal(folder / "journal"))
        self.partitions = PartitioningLoop(self.loop, AgentRegistry(self.cluster.devices), str(folder), policy)

    async def submit(self, name: str, want: Request, lasts_s: int = 600, **more: Any) -> None:
        role = Role(want)
        await self.cluster.work.submit([(Workload(f"default/{name}", (role,), **more), Program(simulated_s=lasts_s))])
        await self.settle()

    async def settle(self) -> None:
        """Until the loop has every event published so far, and nothing is left to decide."""
        await until(self._is_settled, "the loop to settle")

    def _is_settled(self) -> bool:
        loop, outbox = self.loop, self.cluster._outbox
        is_open = loop.state.backlog.to_try or (loop.state.backlog.try_all and loop.state.backlog.by_key)
        has_events = loop._inbox or outbox is None or not outbox.empty()
        return loop.ready and loop.is_waiting and not has_events and not is_open

    async def turn(self, seconds: int = 0) -> None:
        self.cluster.advance(seconds)
        await self.settle()
        await self.partitions.run_once()
        await self.settle()

    def modes(self, name: str = "a") -> list[str]:
        """Of each GPU of a node, in its order; '' while it changes."""
        found: dict[str, str] = {}
        for gpu in self.cluster.state.nodes[name].gpus:
            found[gpu.parent or gpu.id] = "" if change_of(gpu) == "changing" else gpu.profile or "SPX"
        return [found.get(f"gpu-{number}", "") for number in range(4)]

    def closed(self, name: str = "a") -> list[str]:
        return [gpu.id for gpu in self.cluster.state.nodes[name].gpus if change_of(gpu) == "draining"]

    def runs(self, name: str) -> bool:
        return f"default/{name}" in self.loop.state.pods


def play(tmp_path: Path, story: Story, *nodes: Node, policy: str = "on") -> None:
    async def run() -> None:
        it = Play(tmp_path, list(nodes) or [node("a")], policy)
        task = asyncio.create_task(it.loop.run())
        try:
            await story(it)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_an_idle_gpu_is_closed_then_changed_then_serves(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await it.submit("small", CPX)
        await it.turn()
        assert it.closed() == ["gpu-0"]
        await it.turn()
        assert it.modes() == ["", "SPX", "SPX", "SPX"]
        await it.turn(59)
        assert it.modes()[0] == ""
        await it.turn(1)
        assert it.modes() == ["CPX+NPS1", "SPX", "SPX", "SPX"]
        assert it.runs("small")
        assert [each.status for each in it.partitions.changer.history] == ["done"]

    play(tmp_path, story)


def test_dry_run_changes_nothing_and_tells_who_waits(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await it.submit("small", CPX)
        for _ in range(3):
            await it.turn(60)
        assert it.modes() == ["SPX"] * 4
        assert it.closed() == []
        said = wait_sentence(it.partitions, [CPX])
        assert said.startswith("the partition planner would change 1 GPU of a from SPX to CPX+NPS1, ready within")
        assert "kaiwo partitions --policy on" in said
        await it.partitions.set_policy("off")
        await it.turn()
        assert wait_sentence(it.partitions, [CPX]) == ""

    play(tmp_path, story, policy="dry-run")


def test_a_gpu_in_use_drains_and_is_open_again_when_nobody_needs_it(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await it.submit("busy", Request(gpus=4), 3600, time_limit_s=3600)
        await it.submit("small", CPX)
        await it.turn()
        assert len(it.closed()) == 1
        said = wait_sentence(it.partitions, [CPX])
        assert "1 GPU takes no new work and will change from SPX to CPX+NPS1 when the work there has ended" in said
        assert "within 1 h 1 min" in said
        await it.turn(60)
        assert it.modes() == ["SPX"] * 4  # never under a running pod
        assert it.runs("busy")
        await it.cluster.work.change("cancel", "default/small")
        await it.turn()
        assert it.closed() == []

    play(tmp_path, story)


def test_the_switch_back_to_dry_run_opens_what_was_closed(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await it.submit("busy", Request(gpus=4), 3600)
        await it.submit("small", CPX)
        await it.turn()
        assert it.closed()
        await it.partitions.set_policy("dry-run")
        await it.turn()
        assert it.closed() == []
        assert read_state(tmp_path / "partitions" / "state.json").policy == "dry-run"

    play(tmp_path, story)


def test_a_change_that_is_under_way_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await it.submit("small", CPX)
        await it.turn()
        await it.turn()
        assert it.modes()[0] == ""
        it.partitions = PartitioningLoop(it.loop, AgentRegistry(it.cluster.devices), str(tmp_path))  # as after kill -9
        assert it.partitions.policy == "on"
        await it.turn(30)
        assert it.modes()[0] == ""
        await it.turn(30)
        assert it.modes() == ["CPX+NPS1", "SPX", "SPX", "SPX"]
        assert it.runs("small")

    play(tmp_path, story)


def test_the_change_respects_where_the_work_may_go(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await it.submit("there", Request(gpus=1, partition="CPX", node_rules=(NodeRule("pool", "In", ("b",)),)))
        for seconds in (0, 0, 60):
            await it.turn(seconds)
        assert it.runs("there")
        assert it.modes("a") == it.modes("c") == ["SPX"] * 4
        await it.submit("nowhere", Request(gpus=1, partition="DPX", node_rules=(NodeRule("pool", "In", ("x",)),)))
        await it.turn()
        assert [step for step in it.partitions.planned.steps if step.change.after.compute == "DPX"] == []

    play(tmp_path, story, node("a", taints=(Taint("lab"),)), node("b"), node("c"))


def test_every_node_is_cut_for_pods_of_which_each_node_has_room_for_one(tmp_path: Path) -> None:
    """Free partitions of a node whose CPUs are taken serve nobody: the others must not wait for them."""

    async def story(it: Play) -> None:
        for number in range(8):
            await it.submit(f"wide-{number}", Request(cpu_milli=400_000, gpus=1, partition="CPX"), 36_000)
        for seconds in (0, 0, 60, 0):
            await it.turn(seconds)
        assert [it.modes(name) for name in "abc"] == [["CPX+NPS1", "SPX", "SPX", "SPX"]] * 3
        assert sum(it.runs(f"wide-{number}") for number in range(8)) == 3
        assert it.partitions.planned.steps == ()
        assert [need.count for need in it.partitions.planned.unserved] == [5]
        assert wait_sentence(it.partitions, [Request(cpu_milli=400_000, gpus=1, partition="CPX")]) == ""

    play(tmp_path, story, node("a"), node("b"), node("c"))


def test_a_gang_that_finds_too_few_cpus_on_all_nodes_together_changes_no_modes(tmp_path: Path) -> None:
    wide = Request(cpu_milli=400_000, gpus=1, partition="CPX")

    async def story(it: Play) -> None:
        for name, count in (("four", 4), ("three", 3)):
            gang = Workload(f"default/{name}", (Role(wide, count=count),))
            await it.cluster.work.submit([(gang, Program(simulated_s=600))])
            await it.turn()
            assert len(it.partitions.planned.steps) == (0 if count == 4 else 3)

    play(tmp_path, story, node("a"), node("b"), node("c"))


def test_a_queue_at_its_limit_changes_no_modes(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await put_queue(it.cluster, Queue("poor", gpu=QueueAmounts(limit=0)))
        await it.submit("small", CPX, queue="poor")
        await it.turn()
        await it.turn()
        assert it.partitions.planned.steps == ()

    play(tmp_path, story)


def test_an_ill_gpu_is_left_alone(tmp_path: Path) -> None:
    ill = node("a")
    devices = (Gpu("gpu-0", "MI300X", 196_608, healthy=False, reason="5 errors"), *ill.gpus[1:])

    async def story(it: Play) -> None:
        await it.submit("small", CPX)
        for seconds in (0, 0, 60):
            await it.turn(seconds)
        assert it.modes() == ["SPX", "CPX+NPS1", "SPX", "SPX"]
        assert it.cluster.state.nodes["a"].gpus[0].reason == "5 errors"

    play(tmp_path, story, Node("a", 640_000, 655_360, pods=500, gpus=devices, labels=ill.labels))


def plan(name: str, profile: str, *pools: str, **more: Any) -> PartitioningPlan:
    return PartitioningPlan(name, (PlanRule("", (NodeRule("pool", "In", pools),), profile),), **more)


def test_a_plan_is_rolled_out_node_by_node_and_its_nodes_are_left_to_it(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await it.partitions.put_plans([plan("cut", "cpx-nps1", "a", "b")])
        await it.submit("busy", Request(gpus=1), 90)
        held = next(iter(it.loop.state.pods["default/busy"].values())).node
        await it.turn()
        stands = {each.node: each.state for each in it.partitions.planned.statuses}
        assert sorted(stands.values()) == (["draining", "pending"] if held == "a" else ["changing", "pending"])
        changed_at: dict[str, int] = {}
        for turn in range(12):
            await it.turn(60 if turn else 0)
            for name in "ab":
                if set(it.modes(name)) == {"CPX+NPS1"}:
                    changed_at.setdefault(name, turn)
        assert len(set(changed_at.values())) == 2
        assert it.modes("c") == ["SPX"] * 4
        await it.submit("whole", Request(gpus=4, node_rules=(NodeRule("pool", "In", ("a",)),)))
        await it.turn(600)
        await it.turn(60)
        assert set(it.modes("a")) == {"CPX+NPS1"}  # somebody wants it so
        assert await it.partitions.drop_plan("cut")
        for seconds in (0, 0, 60):
            await it.turn(seconds)
        assert it.runs("whole")

    play(tmp_path, story, node("a"), node("b"), node("c"))


def test_dry_paused_conflicting_and_nameless_plans_change_nothing_and_say_so(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await it.partitions.put_plans(
            [
                plan("dry", "cpx-nps4", "a", is_dry=True),
                plan("paused", "cpx-nps4", "b", is_paused=True),
                plan("one", "cpx", "c"),
                plan("two", "dpx", "c"),
                plan("default", "default", "d"),
            ]
        )
        await it.turn()
        await it.turn(60)
        stands = {each.plan: (each.state, each.reason) for each in it.partitions.planned.statuses}
        assert stands["dry"] == ("dry-run", "would change 4 GPUs")
        assert stands["default"][0] == "refused"
        assert "paused" not in stands
        assert it.partitions.planned.conflicts == (
            "node 'c': plan 'one' wants cpx and plan 'two' wants dpx; narrow the selector of one of them",
        )
        assert all(it.modes(name) == ["SPX"] * 4 for name in "abcd")

    play(tmp_path, story, *(node(name) for name in "abcd"))


def test_a_preview_of_plans_that_contradict_each_other_promises_nothing(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        one, two = plan("one", "cpx", "a"), plan("two", "dpx", "a", "b")
        await it.turn()
        stands = {(each.plan, each.node): each.reason for each in await it.partitions.preview([one, two])}
        assert stands == {
            ("one", "a"): "would stay as it is: plan 'two' wants dpx",
            ("two", "a"): "would stay as it is: plan 'one' wants cpx",
            ("two", "b"): "would change 4 GPUs",
        }
        await it.partitions.put_plans([two])
        (stand,) = await it.partitions.preview([one])
        assert stand.reason == "would stay as it is: plan 'two' wants dpx"
        (stand,) = await it.partitions.preview([plan("two", "cpx", "a")])  # in place of the one that is there
        assert stand.reason == "would change 4 GPUs"

    play(tmp_path, story, node("a"), node("b"))


def test_gpus_that_come_from_several_modes_are_told_with_all_of_them(tmp_path: Path) -> None:
    halves = tuple(
        Gpu(f"gpu-1-p{part}", "MI300X", 98_304, parent="gpu-1", profile="DPX+NPS1", milli=500) for part in range(2)
    )
    mixed = msgspec.structs.replace(node("a"), gpus=(Gpu("gpu-0", "MI300X", 196_608), *halves))

    async def story(it: Play) -> None:
        wide = Request(gpus=16, partition="CPX")
        await it.submit("wide", wide)
        await it.turn(600)
        said = wait_sentence(it.partitions, [wide])
        assert said.startswith("the partition planner would change 2 GPUs of a from DPX or SPX to CPX+NPS1, ready")

    play(tmp_path, story, mixed, policy="dry-run")


def test_a_memory_mode_waits_for_the_whole_node(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await it.submit("busy", WHOLE, 100)
        await it.partitions.put_plans([plan("cut", "cpx-nps4", "a", rollout=Rollout(5, 5))])
        await it.turn()
        await it.turn(60)
        assert it.modes() == ["SPX"] * 4
        await it.turn(60)
        await it.turn()
        assert it.modes() == [""] * 4
        await it.turn(600)
        assert it.modes() == ["CPX+NPS4"] * 4

    play(tmp_path, story)


def test_whatever_comes_no_pod_loses_its_devices(tmp_path: Path, test_size: int) -> None:
    """The law, on random work of every kind, with the books looked at after every turn."""
    draw = random.Random(7)
    wants = (CPX, Request(gpus=2, partition="DPX"), Request(gpus=4), WHOLE, Request(gpus=1, gpu_milli=500))

    async def story(it: Play) -> None:
        for number in range(60 * test_size):
            await it.submit(f"job-{number}", draw.choice(wants), draw.randint(60, 900))
            await it.turn(draw.choice((0, 30, 120)))
            for name, at in it.cluster.state.nodes.items():
                shown = {gpu.id: gpu for gpu in at.gpus}
                for device in it.cluster.devices.devices_in_use(name):
                    assert device in shown
                    assert "does not show it" not in shown[device].reason
        assert len(it.partitions.changer.history) >= 4

    play(tmp_path, story, node("a"), node("b"))


def test_on_kubernetes_plans_are_the_clusters_own_objects_and_the_policy_is_dry_run_at_first(tmp_path: Path) -> None:
    cluster = SimulatedCluster()
    it = PartitioningLoop(SchedulingLoop(cluster, None), AgentRegistry(cluster.devices), str(tmp_path))
    it.use_objects(Mock())
    assert it.policy == "dry-run"
    with pytest.raises(RefusedError, match="kubectl apply"):
        asyncio.run(it.put_plans([PartitioningPlan("p", ())]))
    with pytest.raises(RefusedError, match="kubectl delete"):
        asyncio.run(it.drop_plan("p"))


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "partitions").mkdir()
    (tmp_path / "partitions" / "state.json").write_text("{")
    with pytest.raises(ConfigError, match="then remove the file"):
        PartitioningLoop(None, AgentRegistry(None), str(tmp_path))


@pytest.mark.parametrize("kept", ["", "off", "dry-run", "on"])
def test_the_policy_is_that_of_the_start_or_the_one_before(tmp_path: Path, kept: str) -> None:
    live = Play(tmp_path, [node("a")], kept).partitions
    asyncio.run(live.set_policy(live.policy))
    again = Play(tmp_path, [node("a")], "").partitions
    assert again.policy == (kept or "dry-run")


class Driven(LocalMachine):
    """A machine whose driver is made of files."""

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        super().__init__("a", str(kernel.root), folder, lambda gpu: "")
        self._kernel = kernel

    def _mode_writer(self, gpu: str) -> Any:
        return SysfsModeWriter(self.root, self._kernel.write, self._kernel.run)


@pytest.mark.parametrize("deaf", [False, True])
def test_on_a_real_machine_the_driver_is_told_and_believed_only_by_what_it_shows(tmp_path: Path, deaf: bool) -> None:
    kernel = Kernel(tmp_path / "tree", gpus=2)
    if deaf:
        kernel.deaf = {0, 1}
    gpus = devices_of(discover(str(kernel.root)))

    async def story(it: Play) -> None:
        it.partitions.changer.machine = Driven(kernel, tmp_path / "record")
        await it.submit("small", CPX)
        await it.turn()
        assert it.closed() == [address(0)]
        await it.turn(1)
        async with asyncio.timeout(PATIENCE_S):
            while not it.partitions.changer.history:
                await it.turn(1)
        await it.turn(1)
        change = it.partitions.changer.history[0]
        if deaf:
            assert (change.status, kernel.modes[0].compute) == ("rolled-back", "SPX")
            assert not it.runs("small")
            assert it.closed() == []
        else:
            assert (change.status, kernel.modes[0].compute) == ("done", "CPX")
            assert it.runs("small")

    play(tmp_path, story, Node("a", 640_000, 655_360, pods=500, gpus=gpus))


class CutShort(Driven):
    """A machine that dies in the middle: its record is on disk, and nothing was written yet."""

    async def carry_out(self, changes: Any) -> Any:
        write_record(str(self._folder / "record.json"), ChangeRecord(tuple(changes)))
        await asyncio.Event().wait()


def test_a_real_change_that_was_cut_short_is_finished_by_the_next_kaiwo(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "tree", gpus=2)
    gpus = devices_of(discover(str(kernel.root)))

    async def story(it: Play) -> None:
        it.partitions.changer.machine = CutShort(kernel, tmp_path / "record")
        await it.submit("small", CPX)
        await it.turn()
        await it.turn()
        await until((tmp_path / "record" / "record.json").exists, "the record of the change")
        it.partitions = PartitioningLoop(it.loop, AgentRegistry(it.cluster.devices), str(tmp_path))
        it.partitions.changer.machine = Driven(kernel, tmp_path / "record")
        await it.partitions.changer.resume()
        await it.turn(1)
        await it.turn(1)
        assert [mode.compute for mode in kernel.modes] == ["CPX", "SPX"]
        assert [each.status for each in it.partitions.changer.history] == ["done"]
        assert it.runs("small")

    play(tmp_path, story, Node("a", 640_000, 655_360, pods=500, gpus=gpus))


def test_a_node_that_goes_away_in_the_middle_stops_nothing_else(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        for name in "ab":
            rules = (NodeRule("pool", "In", (name,)),)
            await it.submit(f"on-{name}", Request(gpus=1, partition="CPX", node_rules=rules))
        await it.turn()
        await it.turn()
        assert it.modes("a")[0] == it.modes("b")[0] == ""
        await it.cluster.nodes.remove("a")
        await it.turn(60)
        assert it.runs("on-b")
        await it.turn()
        assert {name for name, _ in it.partitions.changer.states} == {"b"}

    play(tmp_path, story, node("a"), node("b"))
