"""GET /api/v1/scale and its metrics: a real loop, real samples, and reservations that the policy makes."""

from pathlib import Path
from typing import Any

import msgspec

from kaiwo.forecast.demand_forecast import HOUR_S, SLOT_S, DemandForecast
from kaiwo.model.policy import Policy
from kaiwo.runtime.forecasting.demand_tracker import FILE, SavedTracker
from tests.api.world import World, world
from tests.waiting import run, until, until_answer


def test_it_says_what_is_missing_now_and_metrics_repeat_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=2) as it:
            for number in range(3):
                await it.submit(f"job-{number}", gpus=8, estimate="1h", simulate="1h")
            await it.until_state("job-1", "running")

            async def ask() -> dict[str, Any]:
                return (await it.get("/scale")).json()["models"][0]  # type: ignore[no-any-return]

            found = await until_answer(ask, lambda found: (found["held_gpus"], found["waiting_gpus"]) == (16, 8))
            assert (found["model"], found["nodes"], found["gpus"], found["gpus_per_node"]) == ("MI300X", 2, 16, 8)
            assert (found["waiting_gpus"], found["add_nodes"]) == (8, 1)
            assert found["add_nodes_at_s"] > 0
            assert (found["hours"], found["may_go"]) == ([], []), "nothing is known about the hours to come"
            await it.context.demand.sample()
            assert 'kaiwo_scale_add_nodes{model="MI300X"} 1.0' in await it.metrics()
            assert 'kaiwo_demand_gpus{model="MI300X"} 24.0' in await it.metrics()

    run(story())


def remember(home: Path, now_s: int, gpus: int) -> None:
    """As if an earlier Kaiwo had seen this demand for three days, of urgent work of the queue.

    And for a moment more: else the sample of an empty cluster counts when ten minutes end during the test.
    """
    forecast = DemandForecast()
    for at_s in range(now_s - 72 * HOUR_S, now_s + 2 * SLOT_S, SLOT_S):
        forecast.observe(at_s, gpus)
    saved = SavedTracker({"MI300X": forecast.save()}, {"default": forecast.save()}, 50)
    (home / FILE).write_bytes(msgspec.msgpack.encode(saved))


def test_what_an_earlier_kaiwo_learned_names_nodes_and_keeps_gpus_for_urgent_work(tmp_path: Path) -> None:
    async def tracker_of(it: World) -> None:
        remember(tmp_path, it.cluster.now_s(), 8)
        it.context.demand.__init__(it.loop, str(tmp_path))  # type: ignore[misc]

    async def story() -> None:
        async with world(tmp_path, nodes=4) as it:
            await tracker_of(it)
            found = (await it.get("/scale")).json()["models"][0]
            assert len(found["hours"]) == 24
            assert found["hours"][0]["expected_gpus"] == 8
            assert len(found["may_go"]) == 3
            await it.context.demand.sample()
            assert (await it.get("/reservations")).json()["items"] == [], "the policy does not say so"
            it.loop.policy = Policy(predicted_ahead_s=HOUR_S, predicted_priority=50)
            await it.context.demand.sample()
            await until(lambda: "predicted-default" in it.loop.state.reservations.objects, "the reservation")
            reserved = it.loop.state.reservations.objects
            await until(lambda: bool(reserved["predicted-default"].picked), "its GPUs to be picked")
            (kept,) = (await it.get("/reservations")).json()["items"]
            assert (kept["name"], kept["owner"], kept["gpus"]) == ("predicted-default", "default", 8)
            kept_nodes = {device.node for device in reserved["predicted-default"].picked}
            may_go = (await it.get("/scale")).json()["models"][0]["may_go"]
            assert len(may_go) == 3
            assert kept_nodes.isdisjoint(may_go), "the node with the kept GPUs does not go"

    run(story())
