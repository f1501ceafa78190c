"""GET /advice, /capacity and /trends: a real loop, a real worker process."""

import re
from pathlib import Path

from kaiwo.api.views.advice import AdviceListView, CapacityView, TrendsView
from tests.api.past_week import week_later
from tests.api.people import bearer, token_for
from tests.api.world import World, decode, world
from tests.waiting import run, until, until_answer


async def scattered(it: World) -> None:
    """One run of one GPU is left on each of two nodes; eight GPUs together are asked for, and cost one move."""
    for number in range(16):
        await it.submit(f"one-{number}", gpus=1, estimate="9h", simulate="9h")
    await it.until_state("one-15", "running")
    by_node: dict[str, list[str]] = {}
    for name, pods in it.loop.state.pods.items():
        by_node.setdefault(next(iter(pods.values())).node, []).append(name)
    for names in by_node.values():
        for name in names[1:]:
            await it.delete(f"/workloads/{name}")
            await it.until_state(name.partition("/")[2], "cancelled")
    await it.submit("wide", gpus=8, estimate="1h", simulate="1h")


def test_advice_names_a_move_with_its_gain_and_its_evidence(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=2) as it:
            answer = await it.get("/advice")
            assert answer.status_code == 200, answer.text
            assert decode(answer, AdviceListView).items == []
            await scattered(it)
            it.context.advisor._found_at = 0.0  # half a minute later

            async def ask() -> AdviceListView:
                return decode(await it.get("/advice"), AdviceListView)

            view = await until_answer(ask, lambda view: view.items, "the worker, on a busy machine")
            (advice,) = view.items
            assert (advice.kind, advice.subject, view.is_whole) == ("move", "default/wide", True)
            assert advice.what.startswith("move default/one-")
            assert advice.what.endswith("which makes room for default/wide")
            assert re.match(r"1 workload starts sooner, by (9 h|8 h 5\d min) on average; at once", advice.gain)
            assert "checked by running the scheduler forward" in advice.evidence
            assert advice.command == "kaiwo defrag plan --for default/wide"
            assert (advice.started_now, advice.sooner, advice.later) == ([0, 1], 1, 0)
            assert advice.wait_s[0] > advice.wait_s[1]
            assert await it.state_of("wide") == "waiting", "nothing was moved"
            bob = bearer(await token_for(it, "bob", "user", "default"))
            seen = decode(await it.client.get("/api/v1/advice", headers=bob), AdviceListView)
            assert [each.kind for each in seen.items] == ["move"]
            assert seen.hidden

    run(story())


def test_a_capacity_plan_compares_numbers_and_models_of_nodes(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            for number in range(3):
                await it.submit(f"job-{number}", gpus=8, estimate="1h", simulate="1h")
            await it.until_state("job-0", "running")
            await until(lambda: it.loop.state.backlog.is_queued("default/job-2"), "the last one to wait")

            async def ask() -> CapacityView:
                return decode(await it.get("/capacity", nodes=["1", "2:H100"]), CapacityView)

            view = await until_answer(ask, lambda view: not view.is_pending, "the worker")
            now, one, other = view.outlooks
            assert [(each.add_nodes, each.model, each.gpus) for each in view.outlooks] == [
                (0, "", 8), (1, "MI300X", 16), (2, "H100", 24),
            ]  # fmt: skip
            assert now.p90_wait_s > one.p90_wait_s >= other.p90_wait_s == 0
            assert (view.waiting, view.unknown) == (2, 0)
            assert len((await it.get("/nodes")).json()["items"]) == 1, "nothing was added"
            for query, sentence in (
                ({"nodes": "many"}, "write a number from 1 to 1,000"),
                ({"nodes": "0"}, "write a number from 1 to 1,000"),
                ({"nodes": "1:GTX"}, "the GPU model 'GTX' is not known; the cluster has MI300X"),
                ({"nodes": [str(number) for number in range(1, 15)]}, "at most 12 choices"),
            ):
                refused = await it.get("/capacity", **query)
                assert refused.status_code == 400, refused.text
                assert sentence in refused.json()["message"]

    run(story())


def test_trends_need_two_days_of_history(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            assert decode(await it.get("/trends"), TrendsView).items == []
        async with week_later(tmp_path / "week") as it:
            found = decode(await it.get("/trends"), TrendsView)
            assert {each.measure for each in found.items} <= {"gpu_used_milli", "waiting"}

    run(story())
