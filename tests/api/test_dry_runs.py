"""A dry run says whether and when work would start and whom it would stop, and leaves no trace."""

from pathlib import Path

from kaiwo.model.workload import Phase
from tests.api.world import world
from tests.waiting import run, until, until_answer


def test_a_dry_run_says_what_would_happen(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:

            async def tried(name: str, **fields: object) -> list[str]:
                answered = await it.post("/workloads", {"name": name, "simulate": "1h", **fields}, dry_run="true")
                assert answered.status_code == 201, answered.text
                return answered.json()["would"]

            assert await tried("now", gpus=8) == ["now would start now on node-0"]
            assert await tried("never", gpus=9) == [
                "never would wait: it asks for 9 GPUs on one node, but the largest node has 8 GPUs"
            ]
            await it.submit("low", gpus=8, simulate="1h", estimate="1h")
            await it.until_state("low", "running")
            pods = it.loop.state.pods["default/low"]
            await until(lambda: pods["main-0"].phase is Phase.RUNNING, "the scheduler to hear of it")
            assert await tried("urgent", gpus=4, priority=99) == [
                "urgent would start now on node-0; for that, low would be stopped"
            ]
            (later,) = await until_answer(
                lambda: tried("later", gpus=4),
                lambda said: "expected" in said[0],
                "an expected start, which takes long",
            )
            assert later.startswith("later would wait: it needs 4 GPUs free on one node, but no node has any free")
            assert "it is expected to start in" in later
            assert await tried("held", gpus=4, hold=True) == ["held would wait: it is held"]
            first, waiting = await tried("sweep", gpus=1, array="0-99")
            assert first == "0 of the first 20 would start now"
            assert waiting.startswith("sweep-0 would wait: it needs 1 GPU free on one node")
            assert {each["name"] for each in (await it.get("/workloads")).json()["items"]} == {"default/low"}
            assert set(it.loop.state.workloads) == {"default/low"}

    run(story())


def test_a_dry_run_says_why_that_node_is_the_best(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=3) as it:
            await it.submit("first", gpus=4, simulate="1h")
            await it.until_state("first", "running")
            answered = await it.post("/workloads", {"name": "next", "simulate": "1h", "gpus": 2}, dry_run="true")
            _, why = answered.json()["would"]
            assert why.startswith("node-0 is the best of 3 nodes with room: ")
            assert "pack 500 x 10" in why
            assert "; next: node-1 with " in why

    run(story())
