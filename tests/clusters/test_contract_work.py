"""What every kind of cluster lets people do: submit, cancel, hold, depend, queues and nodes."""

from collections.abc import Coroutine
from typing import Any

import pytest

from kaiwo.model.errors import ClusterError, ConfigError, KaiwoError, NotFoundError, RefusedError
from kaiwo.model.node import Node
from kaiwo.model.queue import Queue, is_same_queue
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import (
    Kind,
    Scene,
    log_path,
    opened,
    put_queue,
    remove_queue,
    some_nodes,
    start_of,
    whole,
    work,
)
from tests.waiting import run


async def refuses(step: Coroutine[Any, Any, object], error: type[KaiwoError], *words: str) -> None:
    """The step raises, says these words, and leaves everything as it was."""
    with pytest.raises(error) as caught:
        await step
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_batch_is_taken_whole_or_not_at_all(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            await refuses(scene.submit("b", "a"), ConfigError, "default/a", "choose another name")
            await refuses(scene.submit("b", "b"), ConfigError, "default/b", "twice")
            await refuses(scene.submit("b", queue="lab"), RefusedError, "lab", "default")
            await refuses(scene.cluster.work.submit([(Workload("default/b", ()), Program())]), ConfigError, "pods")
            assert [record.workload.name for record in scene.cluster.records()] == ["default/a"]

    run(test())


def test_the_scheduler_knows_the_image(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", program=Program(image="torch:2.8", simulated_s=60))
            assert scene.workload("a").image == "torch:2.8"

    run(test())


def test_the_name_of_an_ended_workload_can_be_used_again(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            await scene.submit("b", after=("a",))
            await scene.cluster.work.change("cancel", "default/a")
            assert scene.workload("b").after_failed == ("default/a",)
            await scene.submit("a", user="ada")
            assert scene.workload("a").user == "ada"
            assert (scene.workload("b").after, scene.workload("b").after_failed) == (("default/a",), ())

    run(test())


def test_only_leaf_queues_take_work(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await put_queue(scene.cluster, Queue("lab"))
            await put_queue(scene.cluster, Queue("vision", parent="lab"))
            await refuses(scene.submit("a", queue="lab"), RefusedError, "lab", "vision")
            await scene.submit("a", queue="vision")

    run(test())


def test_a_cancelled_workload_is_stopped_and_over(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("waiting", "running")
            await scene.start(start_of("running"))
            for name in ("waiting", "running"):
                await scene.cluster.work.change("cancel", f"default/{name}", who="ada")
                await scene.until_state(name, WorkloadState.CANCELLED)
                assert scene.cluster.record(f"default/{name}").message == "cancelled by ada"
                await scene.cluster.work.change("cancel", f"default/{name}")
            await scene.settle()
            assert scene.told_state.pods == {}
            await refuses(scene.cluster.work.change("cancel", "default/unknown"), NotFoundError, "default/unknown")

    run(test())


def test_what_has_ended_cannot_be_cancelled_or_held(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            await scene.start(start_of("a"))
            await scene.until_state("a", WorkloadState.SUCCEEDED)
            await refuses(scene.cluster.work.change("cancel", "default/a"), RefusedError, "succeeded")
            await refuses(scene.cluster.work.change("hold", "default/a"), RefusedError, "requeue")

    run(test())


def test_hold_and_release(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", held=True)
            assert scene.state("a") is WorkloadState.HELD
            await scene.cluster.work.change("release", "default/a")
            assert scene.state("a") is WorkloadState.WAITING
            await scene.cluster.work.change("hold", "default/a")
            await scene.settle()
            assert scene.told_state.workloads["default/a"].held
            await scene.cluster.work.change("release", "default/a")
            await scene.cluster.work.change("release", "default/a")  # once more does no harm
            released = scene.told_state.workloads["default/a"]
            assert released.not_before_s >= released.submitted_s > 0, "what it was held for does not count as waiting"
            assert released.not_before_s == scene.cluster.record("default/a").workload.not_before_s
            await scene.start(start_of("a"))
            await refuses(scene.cluster.work.change("hold", "default/a"), RefusedError, "requeue")
            await refuses(scene.cluster.work.change("release", "default/a"), RefusedError, "is running and not held")

    run(test())


def test_requeue_stops_what_runs_and_revives_what_ended(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", program=Program(simulated_s=600))
            await scene.start(start_of("a"))
            await scene.cluster.work.change("requeue", "default/a")
            await scene.until_state("a", WorkloadState.WAITING)
            assert scene.workload("a").not_before_s == 0
            await scene.cluster.work.change("cancel", "default/a")
            await scene.until_state("a", WorkloadState.CANCELLED)
            await scene.cluster.work.change("requeue", "default/a")
            assert scene.state("a") is WorkloadState.WAITING
            await scene.start(start_of("a"))
            await scene.until_state("a", WorkloadState.SUCCEEDED)
            assert scene.cluster.record("default/a").attempt == 2

    run(test())


async def finish(scene: Scene, name: str, state: WorkloadState = WorkloadState.SUCCEEDED) -> None:
    await scene.start(start_of(name))
    await scene.until_state(name, state)


def test_dependents_wait_until_all_have_succeeded(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", "b")
            await scene.submit("c", after=("a", "b", "a"))
            assert scene.workload("c").after == ("default/a", "default/b")
            await finish(scene, "a")
            assert scene.workload("c").after == ("default/b",)
            await finish(scene, "b")
            await scene.settle()
            assert scene.told_state.workloads["default/c"].after == ()
            await scene.submit("d", after=("a",))
            assert scene.workload("d").after == ()
            await refuses(scene.submit("e", after=("unknown",)), ConfigError, "default/e", "default/unknown")

    run(test())


def test_a_failed_dependency_is_named_until_it_is_tried_again(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", time_limit_s=60, program=Program(simulated_s=120))
            await scene.submit("b", after=("a",))
            await finish(scene, "a", WorkloadState.FAILED)
            assert (scene.workload("b").after, scene.workload("b").after_failed) == ((), ("default/a",))
            await scene.submit("c", after=("a",))
            assert scene.workload("c").after_failed == ("default/a",)
            await scene.cluster.work.change("requeue", "default/a")
            for name in ("b", "c"):
                assert (scene.workload(name).after, scene.workload(name).after_failed) == (("default/a",), ())

    run(test())


def task(index: int, name: str = "sweep", **fields: Any) -> tuple[Workload, Program]:
    labels = {"kaiwo.ai/array": name, "kaiwo.ai/array-index": str(index)}
    return work(f"{name}-{index}", labels=labels, **fields), Program(simulated_s=120)


def test_the_name_of_an_array_means_all_its_tasks(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.cluster.work.submit([task(0), task(1)])
            await scene.submit("sum", after=("sweep",))
            assert scene.workload("sum").after == ("default/sweep-*",)
            await finish(scene, "sweep-0")
            assert scene.workload("sum").after == ("default/sweep-*",)
            await finish(scene, "sweep-1")
            assert (scene.workload("sum").after, scene.workload("sum").after_failed) == ((), ())
            await scene.submit("late", after=("sweep", "sum"))
            assert scene.workload("late").after == ("default/sum",)
            await refuses(scene.submit("x", after=("sweep-7",)), ConfigError, "default/sweep-7", "does not exist")
            await scene.submit("sweep")
            await scene.submit("of-the-workload", after=("sweep",))
            assert scene.workload("of-the-workload").after == ("default/sweep",)

    run(test())


def test_an_array_has_failed_with_its_first_task_until_all_are_tried_again(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.cluster.work.submit([task(0, time_limit_s=60), task(1, time_limit_s=60), task(2)])
            await scene.submit("sum", after=("sweep",))
            for name in ("sweep-0", "sweep-1"):
                await finish(scene, name, WorkloadState.FAILED)
                assert (scene.workload("sum").after, scene.workload("sum").after_failed) == ((), ("default/sweep-*",))
            await scene.submit("other", after=("sweep",))
            assert scene.workload("other").after_failed == ("default/sweep-*",)
            await scene.cluster.work.change("requeue", "default/sweep-0")
            assert scene.workload("sum").after_failed == ("default/sweep-*",)
            await scene.cluster.work.change("requeue", "default/sweep-1")
            for name in ("sum", "other"):
                assert (scene.workload(name).after, scene.workload(name).after_failed) == (("default/sweep-*",), ())

    run(test())


def test_who_takes_the_name_of_a_cancelled_task_takes_its_place_in_the_array(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.cluster.work.submit([task(0), task(1), task(2)])
            await scene.submit("sum", after=("sweep",))
            await scene.cluster.work.change("cancel", "default/sweep-1")
            assert scene.workload("sum").after_failed == ("default/sweep-*",)
            await scene.submit("sweep-1")  # by itself, not as a task of the array
            waits = (scene.workload("sum").after, scene.workload("sum").after_failed)
            assert waits == (("default/sweep-*", "default/sweep-1"), ())
            for name in ("sweep-0", "sweep-2", "sweep-1"):
                await finish(scene, name, WorkloadState.SUCCEEDED)
            assert (scene.workload("sum").after, scene.workload("sum").after_failed) == ((), ())

    run(test())


def test_a_cancelled_task_may_be_replaced_when_the_others_are_over(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.cluster.work.submit([task(0), task(1)])
            await scene.submit("sum", after=("sweep",))
            await finish(scene, "sweep-0", WorkloadState.SUCCEEDED)
            await scene.cluster.work.change("cancel", "default/sweep-1")
            await scene.submit("sweep-1")
            assert (scene.workload("sum").after, scene.workload("sum").after_failed) == (("default/sweep-1",), ())
            await finish(scene, "sweep-1", WorkloadState.SUCCEEDED)
            assert (scene.workload("sum").after, scene.workload("sum").after_failed) == ((), ())

    run(test())


def test_an_array_and_its_dependents_may_come_in_one_batch(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.cluster.work.submit([(work("sum", after=("sweep",)), Program()), task(0), task(1)])
            assert scene.workload("sum").after == ("default/sweep-*",)
            circle = [(work("a", after=("ring",)), Program()), task(0, "ring", after=("a",)), task(1, "ring")]
            await refuses(scene.cluster.work.submit(circle), ConfigError, "default/a > default/ring-* > default/ring-0")
            assert len(scene.cluster.records()) == 3

    run(test())


def test_a_name_that_is_taken_over_closes_no_circle(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("b", held=True)
            await scene.submit("a", after=("b",))
            await scene.cluster.work.change("cancel", "default/b")
            await refuses(scene.submit("b", after=("a",)), ConfigError, "default/b > default/a > default/b")
            await scene.submit("c", after=("a",))
            await refuses(scene.submit("b", after=("c",)), ConfigError, "wait for each other")
            await scene.submit("b")
            assert scene.workload("a").after == ("default/b",)

    run(test())


def test_the_name_of_a_task_that_is_taken_over_closes_no_circle(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.cluster.work.submit([task(0), task(1)])
            await scene.submit("sum", after=("sweep",))
            await scene.cluster.work.change("cancel", "default/sweep-1")
            await refuses(scene.submit("sweep-1", after=("sum",)), ConfigError, "wait for each other", "default/sum")

    run(test())


def test_a_workload_that_begins_again_closes_no_circle(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", held=True)
            await scene.submit("b", after=("a",))
            await scene.cluster.work.change("cancel", "default/b")
            await scene.cluster.work.change("cancel", "default/a")
            await scene.submit("a", after=("b",))
            assert scene.workload("a").after_failed == ("default/b",)
            await refuses(
                scene.cluster.work.change("requeue", "default/b"), ConfigError, "default/b > default/a > default/b"
            )
            assert scene.state("b") is WorkloadState.CANCELLED

    run(test())


def test_a_batch_may_depend_on_itself_but_not_in_a_circle(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            items = [(work("b", after=("a",)), Program()), (work("a"), Program())]
            await scene.cluster.work.submit(items)
            assert scene.workload("b").after == ("default/a",)
            circle = [
                (work("x", after=("z",)), Program()),
                (work("y", after=("x",)), Program()),
                (work("z", after=("y",)), Program()),
            ]
            await refuses(
                scene.cluster.work.submit(circle), ConfigError, "default/x > default/z > default/y > default/x"
            )
            await refuses(scene.submit("s", after=("s",)), ConfigError, "default/s > default/s")
            assert len(scene.cluster.records()) == 2

    run(test())


def test_queues_keep_their_tree_whole(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            cluster = scene.cluster
            await refuses(put_queue(cluster, Queue("a", parent="nowhere")), ConfigError, "nowhere")
            await refuses(put_queue(cluster, Queue("a", parent="a")), ConfigError, "a > a")
            await put_queue(cluster, Queue("a"))
            await put_queue(cluster, Queue("b", parent="a"))
            await refuses(put_queue(cluster, Queue("a", parent="b")), ConfigError, "a > b > a")
            await scene.submit("work", queue="b")
            await refuses(
                put_queue(cluster, Queue("c", parent="b")), RefusedError, "1 living workload,", "end it first"
            )
            await refuses(put_queue(cluster, Queue("c", parent="default")), RefusedError, "default")
            await refuses(remove_queue(cluster, "a"), RefusedError, "b")
            await refuses(remove_queue(cluster, "b"), RefusedError, "living")
            await refuses(remove_queue(cluster, "default"), RefusedError)
            await refuses(remove_queue(cluster, "c"), NotFoundError)
            await cluster.work.change("cancel", "default/work")
            await remove_queue(cluster, "b")
            await remove_queue(cluster, "a")
            await refuses(cluster.work.change("requeue", "default/work"), ConfigError, "queue b")

    run(test())


def test_queues_and_work_come_together_or_not_at_all(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            cluster = scene.cluster
            await scene.submit("taken")
            lab, team = Queue("lab"), Queue("team", parent="lab")
            refused = [(work("a", queue="team"), Program()), (work("taken"), Program())]
            misplaced = [(work("a", queue="lab"), Program())]
            for dry_run in (True, False):
                await refuses(cluster.work.put([team, lab], refused, dry_run=dry_run), ConfigError, "default/taken")
                await refuses(cluster.work.put([team, lab], misplaced, dry_run=dry_run), RefusedError, "lab", "team")
                await refuses(cluster.work.put([team], [], dry_run=dry_run), ConfigError, "lab", "does not exist")
                await refuses(cluster.work.put([lab, lab], [], dry_run=dry_run), ConfigError, "lab", "2 times")
                circle = [Queue("x", parent="z"), Queue("y", parent="x"), Queue("z", parent="y")]
                await refuses(
                    cluster.work.put([Queue("w", parent="x"), *circle], [], dry_run=dry_run), ConfigError, "x > z"
                )
            assert set(cluster.state.queues) == {"default"}
            good = [(work("a", queue="team"), Program())]
            assert await cluster.work.put([team, lab], good, dry_run=True) == (None, None)
            assert set(cluster.state.queues) == {"default"}
            assert [record.workload.name for record in cluster.records()] == ["default/taken"]
            assert await cluster.work.put([team, lab], good) == (None, None)
            assert scene.workload("a").queue == "team"
            larger = Queue("lab", priority=5)
            for dry_run in (True, False):
                before = await cluster.work.put([larger, team], [], dry_run=dry_run)
                assert all(map(is_same_queue, (lab, team), before))
            assert is_same_queue(larger, cluster.state.queues["lab"])

    run(test())


def test_a_dry_run_over_an_ended_workload_leaves_it_in_its_place(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", "b")
            await scene.cluster.work.change("cancel", "default/a")
            await scene.cluster.work.change("cancel", "default/b")
            before = list(scene.cluster.records())
            await scene.cluster.work.put([], [(work("a"), Program())], dry_run=True)
            assert list(scene.cluster.records()) == before
            assert list(scene.cluster.state.ended) == [("default/a", 1), ("default/b", 1)]

    run(test())


def test_queues_and_work_go_together_or_not_at_all(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            cluster = scene.cluster
            await cluster.work.put([Queue("lab"), Queue("team", parent="lab")], [])
            await scene.submit("a", "b", queue="team")
            await scene.submit("c")
            await scene.start(start_of("a"))
            both = ("default/a", "default/b")
            await refuses(
                cluster.work.remove(["lab", "team"], ["default/a"]), RefusedError, "team", "1 living workload;"
            )
            await refuses(cluster.work.remove(["lab"], both), RefusedError, "lab", "team")
            await refuses(cluster.work.remove(["team", "nowhere"], both), NotFoundError, "nowhere")
            await refuses(cluster.work.remove(["team"], [*both, "default/ghost"]), NotFoundError, "default/ghost")
            await refuses(cluster.work.remove(["default"], ["default/c"]), RefusedError, "always exists")
            assert scene.state("a") in (WorkloadState.STARTING, WorkloadState.RUNNING)
            assert scene.state("b") is WorkloadState.WAITING
            stopping = await cluster.work.remove(["lab", "team"], both, who="ada")
            assert set(cluster.state.queues) == {"default"}
            for name in stopping:
                await scene.until_state(name, WorkloadState.CANCELLED)
            await cluster.work.forget_ended(stopping)
            assert [record.workload.name for record in cluster.records()] == ["default/c"]

    run(test())


def test_a_cordoned_node_takes_no_new_pods(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            await scene.cluster.nodes.cordon("node-1", True, "a fan is loud")
            await scene.settle()
            assert scene.told_state.nodes["node-1"].reason == "a fan is loud"
            assert await scene.start(start_of("a")) == ()
            assert scene.workload("a").not_before_why == "node node-1 is cordoned"
            await scene.cluster.nodes.cordon("node-1", False)
            assert await scene.start(start_of("a")) == ("default/a/main-0",)
            await refuses(scene.cluster.nodes.cordon("nowhere", True), NotFoundError, "nowhere")

    run(test())


def test_a_drained_node_is_cordoned_and_its_work_waits_again(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("gang", pods=2)
            await scene.submit("other")
            await scene.start(start_of("gang"), start_of("gang", "main-1", "node-2"))
            await scene.start(start_of("other", node="node-2", devices=whole(3)))
            assert await scene.cluster.nodes.drain("node-1") == ("default/gang",)
            await scene.until_state("gang", WorkloadState.WAITING)
            assert scene.state("other") in (WorkloadState.STARTING, WorkloadState.RUNNING)
            assert await scene.start(start_of("gang"), start_of("gang", "main-1", "node-2")) == ()

    run(test())


def test_the_work_of_a_removed_node_waits_again(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            await scene.start(start_of("a"))
            await scene.cluster.nodes.remove("node-1")
            await scene.until_state("a", WorkloadState.WAITING)
            await scene.settle()
            assert set(scene.told_state.nodes) == {"node-2"}
            assert await scene.start(start_of("a")) == ()
            assert await scene.start(start_of("a", node="node-2")) == ("default/a/main-0",)
            await refuses(scene.cluster.nodes.remove("node-1"), NotFoundError)

    run(test())


def test_a_node_can_be_added_and_changed_but_not_under_its_pods(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            (node,) = some_nodes(1, gpus=4)
            await scene.submit("a")
            await scene.start(start_of("a", devices=whole(7)))
            await refuses(scene.cluster.nodes.put(node), RefusedError, "gpu-7", "drain")
            await scene.cluster.nodes.put(Node("new", 1000, 1024))
            await scene.settle()
            assert set(scene.told_state.nodes) == {"node-1", "node-2", "new"}
            twins = (node.gpus[0], node.gpus[0])
            await refuses(scene.cluster.nodes.put(Node("odd", gpus=twins)), ConfigError, "same id")

    run(test())


def test_ended_work_can_be_forgotten_by_name(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("job")
            await scene.cluster.work.change("cancel", "default/job")
            await scene.cluster.work.forget_ended(["default/job"])
            await refuses(_record(scene, "default/job"), NotFoundError, "forgotten")
            await scene.submit("alive")
            await refuses(scene.cluster.work.forget_ended(["default/alive"]), RefusedError, "cancel")

    run(test())


async def _record(scene: Scene, name: str) -> None:
    scene.cluster.record(name)


def test_simulated_work_has_no_log_and_unknown_pods_are_named(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            assert log_path(scene.cluster, "default/a") == ""
            if scene.cluster.abilities.logs is None:
                return
            with pytest.raises(NotFoundError, match="main-0"):
                log_path(scene.cluster, "default/a", "main-7")

    run(test())


def test_nothing_is_written_after_close(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a")
            await scene.cluster.close()
            await refuses(scene.submit("b"), ClusterError, "closed")

    run(test())


def test_many_are_steered_in_one_change_and_each_has_its_answer(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", "b", "c")
            await scene.start_on("b")
            version = scene.cluster.state.version
            held = await scene.cluster.work.change_many("hold", ["default/a", "default/b", "default/x", "default/c"])
            assert scene.cluster.state.version == version + 1
            assert [type(each) for each in held] == [type(None), RefusedError, NotFoundError, type(None)]
            assert [scene.state(name) for name in "abc"] == [
                WorkloadState.HELD,
                WorkloadState.RUNNING,
                WorkloadState.HELD,
            ]
            assert (
                await scene.cluster.work.change_many("cancel", ["default/a", "default/b", "default/c"]) == (None,) * 3
            )
            await scene.until_state("b", WorkloadState.CANCELLED)
            assert {scene.state(name) for name in "abc"} == {WorkloadState.CANCELLED}

    run(test())
