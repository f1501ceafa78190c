"""Running work says how fast it is; that is measured, shown, kept over a restart, and replayed."""

from pathlib import Path
from typing import Any

from kaiwo.model.policy import Policy
from kaiwo.runtime.loop.replay import replay
from tests.api.world import world
from tests.waiting import run, until

PATH = "/workloads/default/train/progress"


def test_a_report_is_measured_shown_and_in_the_journal(tmp_path: Path) -> None:
    async def work() -> int:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("train", pods=2, gpus=4, simulate="1h")
            await kaiwo.until_state("train", "running")
            answer = await kaiwo.post(PATH, {"pod": "main-0", "step": "2s", "expected": "1s", "steps": 7})
            assert answer.status_code == 200, answer.text
            said = "workload default/train: pod main-0: a step took 2 s, and 1 s were expected; 7 steps are done"
            assert answer.json()["done"] == [said]
            node = kaiwo.loop.state.pods["default/train"]["main-0"].node
            await until(lambda: node in kaiwo.loop.state.speeds.nodes)
            assert kaiwo.loop.state.speeds.nodes[node].permille == 500
            detail = (await kaiwo.get("/workloads/default/train")).json()
            assert detail["progress"].startswith("pod main-0: a step took 2 s, and 1 s were expected; 7 steps are done")
            await kaiwo.submit("next", gpus=1, simulate="1h")
            await kaiwo.until_state("next", "running")
            assert kaiwo.loop.last_cycle is not None
            return kaiwo.loop.last_cycle.number

    number = run(work())
    result = replay(str(tmp_path), number)
    assert result.now == result.then


NONSENSE: list[tuple[Any, str]] = [
    ({}, "says nothing"),
    ({"expected": "2s"}, "give step, too"),
    ({"step": "soon"}, "2.1s or 350ms"),
    ({"step": "25h"}, "at most a day"),
    ({"step": True}, "2.1s or 350ms"),
    ({"step": -1}, "2.1s or 350ms"),
    ({"bandwidth": "fast"}, "25GB/s"),
    ({"steps": -1}, "number of steps"),
    ({"steps": "1e9"}, "number of steps"),
    ({"pod": 5, "step": "1s"}, "name of one of its pods"),
    ({"speed": 5}, "there is no field 'speed'"),
    ([], "not a mapping"),
]


def test_what_makes_no_sense_is_refused_in_one_sentence(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("train", gpus=1, simulate="1h")
            await kaiwo.until_state("train", "running")
            for body, word in NONSENSE:
                answer = await kaiwo.post(PATH, body)
                assert (answer.status_code, word in answer.json()["message"]) == (400, True), answer.text
            assert not kaiwo.loop.state.speeds.progress

    run(work())


def test_only_running_work_and_pods_that_exist_make_progress(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("train", gpus=1, simulate="1h", hold=True)
            answer = await kaiwo.post(PATH, {"step": "2s"})
            assert answer.status_code == 409
            assert "is not running" in answer.json()["message"]
            await kaiwo.post("/workloads/default/train/release")
            await kaiwo.until_state("train", "running")
            answer = await kaiwo.post(PATH, {"step": "2s", "pod": "main-7"})
            assert answer.status_code == 404
            assert "has no pod main-7 that runs; its pods are main-0" in answer.json()["message"]

    run(work())


def test_a_slow_node_is_told_and_work_leaves_it(tmp_path: Path) -> None:
    """The whole product: reports of four pods, one of them slow; the policy says that work leaves at once."""
    policy = Policy(slow_nodes="leave", slow_for_s=0)

    async def work() -> None:
        async with world(tmp_path, nodes=6, policy=policy) as kaiwo:
            await kaiwo.submit("train", pods=4, gpus=8, simulate="1h")
            await kaiwo.until_state("train", "running")
            slow = kaiwo.loop.state.pods["default/train"]["main-2"].node
            for pod, step in (("main-0", "1s"), ("main-1", "1s"), ("main-3", "1s"), ("main-2", "5s")):
                assert (await kaiwo.post(PATH, {"pod": pod, "step": step, "expected": "1s"})).status_code == 200
            await until(lambda: bool(kaiwo.loop.recoveries.past))
            recovery = (await kaiwo.get("/recovery")).json()
            assert [each["name"] for each in recovery["resting"]] == [slow]
            assert recovery["resting"][0]["reason"] == "it is slow: 20 % of the usual speed"
            [past] = recovery["past"]
            assert (past["kind"], past["way"], past["lost"]) == ("slow", "replace", ["main-2"])
            assert past["causes"] == [f"slow node {slow}"]
            node = (await kaiwo.get(f"/nodes/{slow}")).json()
            assert node["reason"] == "it is slow: 20 % of the usual speed"
            assert 'topology_recovery_duration_seconds_count{cause="slow",way="replace"} 1.0' in await kaiwo.metrics()
            assert kaiwo.loop.state.pods["default/train"]["main-2"].node != slow

    run(work())
