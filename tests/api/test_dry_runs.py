"""A dry run says whether and when work would start and whom it would stop, and leaves no trace."""

from pathlib import Path

from tests.api.world import world
from tests.waiting import run


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
            assert await tried("urgent", gpus=4, priority=99) == [
                "urgent would start now on node-0; for that, low would be stopped"
            ]
            (later,) = await tried("later", gpus=4)
            assert later.startswith("later would wait: it needs 4 GPUs free on one node, but no node has any free")
            assert "it is expected to start in" in later
            assert await tried("held", gpus=4, hold=True) == ["held would wait: it is held"]
            first, waiting = await tried("sweep", gpus=1, array="0-99")
            assert first == "0 of the first 20 would start now"
            assert waiting.startswith("sweep-0 would wait: it needs 1 GPU free on one node")
            assert {each["name"] for each in (await it.get("/workloads")).json()["items"]} == {"default/low"}
            assert set(it.loop.state.workloads) == {"default/low"}

    run(story())
