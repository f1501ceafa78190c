"""A past cycle is decided again by a worker: what it saw, where it put what, and the scores of the nodes."""

from pathlib import Path

from tests.api.world import world
from tests.waiting import run, until


def test_a_cycle_tells_what_it_decided_and_why_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=3) as it:
            made = await it.post("/workloads", {"name": "train", "gpus": 2, "simulate": "1h"})
            assert made.status_code == 201, made.text
            await until(lambda: "default/train" in it.loop.state.pods, "the start")
            cycles = (await it.get("/cycles")).json()["items"]
            number = next(each["number"] for each in cycles if each["starts"])
            detail = (await it.get(f"/cycles/{number}")).json()
            assert detail["is_same"] is True
            assert (detail["nodes"], detail["waiting"]) == (3, 1)
            (start,) = detail["starts"]
            assert (start["workload"], len(start["devices"]), start["fits"]) == ("default/train", 2, 3)
            best, *others = start["candidates"]
            assert best["node"] == start["node"]
            assert best["score"] == sum(term["score"] * term["weight"] for term in best["terms"])
            assert others
            assert all(each["score"] <= best["score"] for each in others)
            for name in ("999999", "-1", "x", "9" * 30):
                missing = await it.get(f"/cycles/{name}")
                assert missing.status_code == 404, name
                assert "cycle" in missing.json()["message"]

    run(story())
