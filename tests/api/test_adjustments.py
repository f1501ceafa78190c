"""Recurring work starts with what it used before; what needs more gets it back; idle work is warned first."""

from pathlib import Path
from typing import Any

from kaiwo.api.views.advice import AdjustmentListView
from kaiwo.devices.agent_messages import GpuSample, Hello, Sample
from kaiwo.devices.inventory import Inventory, Telemetry
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.runtime.advising.adjustment_file import FILE, AdjustmentFile
from tests.api.past_week import GPUS, VirtualClock, measured_hour
from tests.api.people import bearer, token_for
from tests.api.world import World, decode, world
from tests.waiting import run, until, until_answer

ACT = Policy(adjustment="act", adjust_after_runs=2)
STEP_S, STEPS = 15, 12


async def adjustments(it: World, **query: object) -> AdjustmentListView:
    answer = await it.get("/adjustments", **query)
    assert answer.status_code == 200, answer.text
    return decode(answer, AdjustmentListView)


def request_of(it: World, name: str) -> Request:
    return it.cluster.record(f"default/{name}").workload.roles[0].request


async def begin(it: World) -> None:
    await it.context.adjuster.learn_from_ended()  # what has ended before the first look is no news
    await it.context.agents.receive(Hello("node-0", "1", "", Inventory("node-0", GPUS)))


async def measured_run(
    it: World, clock: VirtualClock, home: Path, name: str, busy: int, mib: int, ends: int = 0, **fields: Any
) -> None:
    """A run of three minutes, of which an agent tells the use; it ends with this exit code."""
    done = home / f"{name}.done"
    command = ["sh", "-c", f"while [ ! -e {done} ]; do sleep 0.05; done; exit {ends}"]
    await it.submit(name, gpus=1, command=command, user="ada", **fields)
    await it.until_state(name, "running")
    await measured_minutes(it, clock, busy, mib)
    done.touch()
    known = runs_known(it)
    await until(lambda: it.cluster.record(f"default/{name}").ended_s, f"{name} to end")
    await it.context.adjuster.learn_from_ended()
    await until(lambda: runs_known(it) > known, f"{name} to be learned")


async def measured_minutes(it: World, clock: VirtualClock, busy: int, mib: int) -> None:
    for step in range(STEPS):
        sequence = int(it.cluster.now_s()) * 100 + step
        samples = tuple(GpuSample(gpu.id, Telemetry(busy, mib)) for gpu in GPUS)
        await it.context.agents.receive(Sample("node-0", sequence, 0.0, samples))
        await it.context.adjuster.sample(it.cluster.now_s())
        await clock.jump(it, STEP_S)


def runs_known(it: World) -> int:
    return sum(len(each.runs) for each in it.context.adjuster.uses.save())


def test_the_next_run_of_the_same_work_gets_the_share_that_the_last_ones_used(tmp_path: Path) -> None:
    async def story() -> None:
        clock = VirtualClock()
        async with world(tmp_path, nodes=1, ticks=clock.ticks, wall=clock.wall, policy=ACT) as it:
            await begin(it)
            for number in range(2):
                await measured_run(it, clock, tmp_path, f"train-{number}", busy=20, mib=20_000)
                assert request_of(it, f"train-{number}").gpu_milli == 1000
            await it.submit("train-2", gpus=1, command=["sleep", "1000"], user="ada")
            assert request_of(it, "train-2").gpu_milli == 300, "a fifth, with the headroom of a share that is a cap"
            await it.until_state("train-2", "running")
            (share,) = [pod.devices[0] for pod in it.loop.state.pods["default/train-2"].values()]
            assert share.milli == 300
            await it.submit("train-3", gpus=1, command=["sleep", "1"], user="bob")
            assert request_of(it, "train-3").gpu_milli == 1000, "the work of somebody else is another kind"
            labels = {"kaiwo.ai/adjust": "off"}
            await it.submit("train-4", gpus=1, command=["sleep", "1"], user="ada", labels=labels)
            assert request_of(it, "train-4").gpu_milli == 1000
            view = await adjustments(it)
            (told,) = view.items
            assert (view.mode, told.workload, told.kind) == ("act", "default/train-2", "next-start")
            assert told.reason == "GPU share 0.3 GPU instead of 1 GPU (the last 2 runs used at most 0.2 GPU)"
            assert [(each.amount, each.asked, each.peak, each.given) for each in told.sizes] == [
                ("gpu_milli", 1000, 200, 300)
            ]
            assert (await adjustments(it, workload="default/train-1")).items == []
            bob = bearer(await token_for(it, "bob", "user", "default"))
            seen = decode(await it.client.get("/api/v1/adjustments", headers=bob), AdjustmentListView)
            assert (seen.items, bool(seen.hidden)) == ([], True)

            async def audit() -> str:
                return (await it.get("/audit")).text

            await until_answer(audit, lambda text: "adjust-next-start" in text, "the audit")
        async with world(tmp_path, nodes=1, ticks=clock.ticks, wall=clock.wall, policy=ACT) as it:
            assert (await adjustments(it)).kinds == 1, "what was learned survives a restart"
            await it.submit("train-5", gpus=1, command=["sleep", "1"], user="ada")
            assert request_of(it, "train-5").gpu_milli == 300

    run(story())


def test_by_default_nothing_is_changed(tmp_path: Path) -> None:
    async def story() -> None:
        clock = VirtualClock()
        policy = Policy(adjust_after_runs=2)
        async with world(tmp_path, nodes=1, ticks=clock.ticks, wall=clock.wall, policy=policy) as it:
            await begin(it)
            for number in range(2):
                await measured_run(it, clock, tmp_path, f"train-{number}", busy=20, mib=20_000)
            await it.submit("train-2", gpus=1, command=["sleep", "1"], user="ada")
            assert request_of(it, "train-2").gpu_milli == 1000
            assert ((await adjustments(it)).mode, (await adjustments(it)).items) == ("advise", [])

    run(story())


def test_work_that_fails_with_all_of_its_smaller_memory_runs_again_with_what_it_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        clock = VirtualClock()
        async with world(tmp_path, nodes=1, ticks=clock.ticks, wall=clock.wall, policy=ACT) as it:
            await begin(it)
            for number in range(2):
                await measured_run(it, clock, tmp_path, f"train-{number}", busy=20, mib=20_000)
            await measured_run(it, clock, tmp_path, "train-2", busy=20, mib=58_900, ends=1)
            await until(lambda: len(it.context.adjuster.history) == 2)
            assert request_of(it, "train-2").gpu_milli == 1000
            restored, adjusted = (await adjustments(it)).items
            assert (restored.kind, adjusted.kind) == ("restored", "next-start")
            assert restored.refused == ""
            await until(lambda: it.cluster.record("default/train-2").attempt >= 1)
            await it.submit("train-3", gpus=1, command=["sleep", "1"], user="ada")
            assert request_of(it, "train-3").gpu_milli == 1000, "until that run is forgotten"

    run(story())


def test_idle_work_is_warned_first_and_released_only_by_policy(tmp_path: Path) -> None:
    async def story(action: str) -> list[str]:
        clock, home = VirtualClock(), tmp_path / action
        policy = Policy(idle_action=action, idle_after_s=1800)
        async with world(home, nodes=1, ticks=clock.ticks, wall=clock.wall, policy=policy) as it:
            await begin(it)
            await it.submit("lazy", gpus=1, command=["sleep", "100000"], user="ada")
            await it.until_state("lazy", "running")
            await measured_hour(it, clock, busy=1)
            adjuster = it.context.adjuster
            await adjuster.act_on_idle()
            assert [each.kind.value for each in adjuster.history] == ["idle-warning"]
            assert await it.state_of("lazy") == "running"
            await measured_hour(it, clock, busy=1)
            await adjuster.act_on_idle()
            assert [each.refused for each in adjuster.history] == [""] * len(adjuster.history)
            if action == "release":
                await it.until_state("lazy", "held")
            else:
                assert await it.state_of("lazy") == "running"
            assert (await adjustments(it)).idle_action == action
            return [each.kind.value for each in adjuster.history]

    assert run(story("warn")) == ["idle-warning"]
    assert run(story("release"))[-1] == "idle-released"


def test_idle_work_that_was_held_to_shrink_starts_again_also_when_kaiwo_was_killed_meanwhile(tmp_path: Path) -> None:
    """Before, it stayed held for ever."""

    async def story() -> None:
        clock, file = VirtualClock(), tmp_path / FILE
        policy = Policy(idle_action="shrink", idle_after_s=1800)
        command = ["sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"]
        async with world(tmp_path, nodes=1, ticks=clock.ticks, wall=clock.wall, policy=policy) as it:
            await begin(it)
            await it.submit("lazy", gpus=1, command=command, user="ada", preemptionDelay="15s")
            await it.until_state("lazy", "running")
            await measured_minutes(it, clock, busy=1, mib=10_000)
            for _ in range(2):
                await measured_hour(it, clock, busy=1)
                await it.context.adjuster.act_on_idle()
            assert it.context.adjuster.history[-1].kind == "idle-shrunk", it.context.adjuster.history
            killed = file.read_bytes()
        file.write_bytes(killed)
        async with world(tmp_path, nodes=1, ticks=clock.ticks, wall=clock.wall, policy=policy) as it:
            await it.until_state("lazy", "running")
            assert request_of(it, "lazy").gpu_milli < 1000
            await it.delete("/workloads/default/lazy")

    run(story())


def test_a_kill_loses_no_adjustment(tmp_path: Path) -> None:
    """What its owner asked for is known within a second, so that work that needs it gets it back."""

    async def story() -> None:
        clock = VirtualClock()
        async with world(tmp_path, nodes=1, ticks=clock.ticks, wall=clock.wall, policy=ACT) as it:
            await begin(it)
            for number in range(2):
                await measured_run(it, clock, tmp_path, f"train-{number}", busy=20, mib=20_000)
            await it.submit("train-2", gpus=1, command=["sleep", "1000"], user="ada")
            file = AdjustmentFile(str(tmp_path))
            await until(lambda: [each.asked[0].request.gpus for each in file.load().adjustments] == [1], "it is stored")

    run(story())


def test_a_damaged_file_is_set_aside_and_measured_again(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / FILE).write_bytes(b"no such thing")
        async with world(tmp_path, nodes=1, policy=ACT) as it:
            assert (await adjustments(it)).items == []
        assert [each.read_bytes() for each in tmp_path.glob(f"{FILE}.damaged-*")] == [b"no such thing"]
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600

    run(story())


def test_work_that_uses_its_gpus_again_is_not_idle_any_more(tmp_path: Path) -> None:
    async def story() -> None:
        clock = VirtualClock()
        policy = Policy(idle_action="release", idle_after_s=1800)
        async with world(tmp_path, nodes=1, ticks=clock.ticks, wall=clock.wall, policy=policy) as it:
            await begin(it)
            await it.submit("lazy", gpus=1, command=["sleep", "100000"], user="ada")
            await it.until_state("lazy", "running")
            await measured_hour(it, clock, busy=1)
            await it.context.adjuster.act_on_idle()
            await measured_hour(it, clock, busy=80)
            await it.context.adjuster.act_on_idle()
            assert it.context.adjuster.history == []
            assert await it.state_of("lazy") == "running"

    run(story())
