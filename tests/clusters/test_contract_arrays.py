"""An array with a limit runs that many tasks at once, in the order of their index, whatever happens to them."""

import random

from kaiwo.manifests import ManifestDefaults, parse
from kaiwo.model.plan import Plan
from kaiwo.model.workload_record import WorkloadState
from tests.clusters.kinds import Kind, Scene, opened, some_nodes, start_of, whole
from tests.waiting import run


async def submit_array(scene: Scene, array: str, **fields: object) -> list[str]:
    form = {"name": "sweep", "gpus": 1, "simulate": "10m", "array": array, **fields}
    parsed = parse(form, ManifestDefaults())
    await scene.cluster.work.submit(list(parsed.submissions))
    return [workload.name for workload, _ in parsed.submissions]


def startable(scene: Scene) -> list[str]:
    """The tasks that a plan may start now."""
    return [
        name.removeprefix("default/sweep-")
        for name, tracked in scene.cluster.state.workloads.items()
        if tracked.record.state is WorkloadState.WAITING and not tracked.workload.array_slots
    ]


def test_only_as_many_tasks_as_the_array_has_slots_may_start(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await submit_array(scene, "0-9%3")
            assert startable(scene) == ["0", "1", "2"]
            await scene.start(start_of("sweep-1"))
            assert startable(scene) == ["0", "2"]
            await scene.until_state("sweep-1", WorkloadState.SUCCEEDED)
            assert startable(scene) == ["0", "2", "3"]
            await scene.cluster.work.change("cancel", "default/sweep-0")
            assert startable(scene) == ["2", "3", "4"]
            await scene.settle()
            assert scene.told_state.workloads["default/sweep-4"].array_slots == 0
            assert scene.told_state.workloads["default/sweep-5"].array_slots == 3

    run(test())


def test_slots_go_by_number_and_not_by_name(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await submit_array(scene, "1,2,10,9%1")
            order = []
            while ready := startable(scene):
                order += ready
                await scene.cluster.work.change("cancel", f"default/sweep-{ready[0]}")
            assert order == ["1", "2", "9", "10"]

    run(test())


def test_a_held_task_gives_its_slot_to_the_next_and_takes_one_when_it_is_released(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await submit_array(scene, "0-3%2")
            await scene.cluster.work.change("hold", "default/sweep-0")
            assert startable(scene) == ["1", "2"]
            await scene.cluster.work.change("release", "default/sweep-0")
            assert startable(scene) == ["1", "2"]
            await scene.cluster.work.change("cancel", "default/sweep-2")
            assert startable(scene) == ["0", "1"]
            await scene.cluster.work.change("requeue", "default/sweep-2")
            assert startable(scene) == ["0", "1"]

    run(test())


def test_tasks_that_are_removed_pass_their_slot_on(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await submit_array(scene, "0-2%1")
            await scene.cluster.work.remove([], ["default/sweep-0"])
            assert startable(scene) == ["1"]

    run(test())


def test_an_array_without_a_limit_and_other_arrays_are_not_concerned(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await submit_array(scene, "0-4")
            assert len(startable(scene)) == 5
            parsed = parse({"name": "other", "array": "0-4%1"}, ManifestDefaults(namespace="team"))
            await scene.cluster.work.submit(list(parsed.submissions))
            assert len(startable(scene)) == 6

    run(test())


def test_the_limit_holds_through_any_story_and_no_slot_is_lost(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind, some_nodes(4)) as scene:
            dice = random.Random(7)
            names = await submit_array(scene, "0-19%4")
            state = scene.cluster.state
            for _ in range(80):
                living = [name for name in names if not state.workloads[name].is_over]
                action = dice.choice(("start", "cancel", "hold", "release", "requeue"))
                name = dice.choice(names)
                if action == "start":
                    free = [n for n in living if n.removeprefix("default/sweep-") in startable(scene)]
                    used = {placed.pod.devices[0].gpu for placed in state.pods.values() if placed.pod.node == "node-1"}
                    gpu = next((g for g in range(8) if f"gpu-{g}" not in used), None)
                    if free and gpu is not None:
                        starts = (start_of(free[0], devices=whole(gpu)),)
                        await scene.cluster.apply(Plan(starts=starts))
                else:
                    await scene.cluster.work.change_many(action, [name])
                using = [
                    name
                    for name, tracked in state.workloads.items()
                    if not tracked.is_over and not tracked.workload.held and not tracked.workload.array_slots
                ]
                waiting = [name for name, tracked in state.workloads.items() if tracked.workload.array_slots]
                assert len(using) <= 4
                assert len(using) == 4 or not waiting, "a free slot is never left unused"

    run(test())
