"""Questions that take long: whoever asks many, or large ones, delays neither scheduling nor the questions of others."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from kaiwo.api.http.problems import ProblemError
from kaiwo.api.routes.past import report
from kaiwo.api.security import rate_limits
from kaiwo.api.security.rate_limits import QuestionTurns
from kaiwo.api.security.roles import TOKEN, AccessRole, Identity
from kaiwo.history.past import consumption
from kaiwo.runtime.forecasting import forward_worker
from kaiwo.snapshot.cluster_state import ClusterState
from tests.api.people import person
from tests.api.world import World, world
from tests.waiting import run, until

OWNER = Identity("root", AccessRole.ADMIN, TOKEN)
EVE = Identity("eve", AccessRole.VIEWER, "t-1")
VALUES = 90_000  # in one YAML text: near the bound, and more than a second of reading


async def until_asked(turns: QuestionTurns, count: int) -> None:
    await until(lambda: sum(turns._asked.values()) == count, f"{count} questions")


def test_a_question_of_the_owner_waits_for_one_of_everybody_else_at_most() -> None:
    async def story() -> None:
        turns, answered = QuestionTurns(), []
        scheduler = asyncio.Lock()

        async def ask(who: Identity) -> None:
            async with turns.of(who), scheduler:
                answered.append(who.name)

        async with scheduler:
            asked = [asyncio.create_task(ask(EVE)) for _ in range(20)]
            await until_asked(turns, 20)
            asked.append(asyncio.create_task(ask(OWNER)))
            await until_asked(turns, 21)
        await asyncio.gather(*asked)
        assert answered.index("root") <= 1, answered
        assert turns._asked == turns._turns == {}, "nothing is remembered of whoever asks nothing"

    run(story())


def test_too_many_questions_of_one_person_are_refused_and_another_token_is_no_way_around(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_limits, "MAX_QUESTIONS", 3)

    async def story() -> None:
        turns, end = QuestionTurns(), asyncio.Event()

        async def ask(who: Identity) -> None:
            async with turns.of(who):
                await end.wait()

        asked = [asyncio.create_task(ask(EVE)) for _ in range(4)]
        await until_asked(turns, 4)
        with pytest.raises(ProblemError, match="too many questions"):
            await ask(Identity("eve", AccessRole.USER, "t-2"))
        asked.append(asyncio.create_task(ask(OWNER)))
        await until_asked(turns, 5)
        end.set()
        await asyncio.gather(*asked)

    run(story())


def test_a_job_starts_while_many_questions_wait(tmp_path: Path) -> None:
    """Before, each step of a cycle waited for all questions that had been asked until then."""

    async def story() -> None:
        async with world(tmp_path) as kaiwo:
            answered = 0

            def question(_: ClusterState) -> None:
                time.sleep(0.05)

            async def ask() -> None:
                nonlocal answered
                await kaiwo.loop.ask(question)
                answered += 1

            flood = [asyncio.create_task(ask()) for _ in range(300)]
            await until(lambda: answered)
            await kaiwo.submit("job", gpus=1, simulate="1h")
            await kaiwo.until_state("job", "running")
            assert answered < 100, f"{answered} questions were answered first"
            for each in flood:
                each.cancel()
            await asyncio.gather(*flood, return_exceptions=True)

    run(story())


def test_the_routes_that_ask_the_scheduler_take_turns(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            await kaiwo.submit("large", gpus=64, simulate="1h")
            eve = await person(kaiwo, "eve", "viewer")
            async with kaiwo.context.turns.of(Identity("eve", AccessRole.VIEWER, eve.id)):
                why = asyncio.create_task(eve.ask("GET", "/workloads/default/large/why"))
                what_if = asyncio.create_task(eve.ask("POST", "/what-if", {"add_nodes": [{"count": 1}]}))
                await until_asked(kaiwo.context.turns, 3)
                assert (await kaiwo.get("/workloads/default/large/why")).status_code == 200
            assert {(await each).status_code for each in (why, what_if)} == {200}

    run(story())


@pytest.mark.parametrize("path", ["/report", "/history", "/workloads/default/one/history", "/alerts/history"])
def test_who_reads_records_again_and_again_delays_only_themselves(tmp_path: Path, path: str) -> None:
    """Before, one viewer with 60 such questions kept the owner waiting for more than half a minute."""

    async def story() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            await kaiwo.submit("one", gpus=1, simulate="1h")
            eve = await person(kaiwo, "eve", "viewer")
            async with kaiwo.context.turns.of(Identity("eve", AccessRole.VIEWER, eve.id)):
                asked = asyncio.create_task(eve.ask("GET", path))
                await until_asked(kaiwo.context.turns, 2)
                assert (await kaiwo.get(path)).status_code == 200
                assert not asked.done()
            assert (await asked).status_code == 200

    run(story())


def test_a_report_has_a_bounded_number_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            for user in ("ada", "grace"):
                await kaiwo.submit(f"of-{user}", gpus=1, simulate="1h", user=user)
                await kaiwo.until_state(f"of-{user}", "running")
            await kaiwo.context.series.sample(kaiwo.cluster.now_s())
            await asyncio.sleep(1.1)
            await kaiwo.context.series.sample(kaiwo.cluster.now_s())
            assert len((await kaiwo.get("/report", by="user")).json()["rows"]) == 2
            for module in (consumption, report):
                monkeypatch.setattr(module, "MAX_ROWS", 1)
            refused = await kaiwo.get("/report", by="user")
            assert refused.status_code == 400
            assert "these are more than 1 rows; group by less" in refused.text
            assert (await kaiwo.get("/report", by="month")).status_code == 200

    run(story())


async def _answers_meanwhile(kaiwo: World, asking: "asyncio.Task[httpx.Response]") -> tuple[float, float]:
    """How long the longest health check took while another request was answered, and how long that one took."""
    began, longest_s = time.monotonic(), 0.0
    while not asking.done():
        at = time.monotonic()
        assert (await kaiwo.client.get("/healthz")).status_code == 200
        longest_s = max(longest_s, time.monotonic() - at)
    return longest_s, time.monotonic() - began


def test_a_large_text_in_a_question_stops_neither_the_event_loop_nor_the_scheduler(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as kaiwo:
            eve = await person(kaiwo, "eve", "viewer")
            text = f"name: [{'[],' * VALUES}]"
            for field in ("policy", "manifests"):
                asking = asyncio.create_task(eve.ask("POST", "/what-if", {field: text}))
                longest_s, took_s = await _answers_meanwhile(kaiwo, asking)
                assert (await asking).status_code == 400
                assert longest_s < took_s / 2, f"{field}: {longest_s:.2f} s of {took_s:.2f} s"
            asking = asyncio.create_task(eve.ask("POST", "/what-if", {"manifests": text}))
            await asyncio.sleep(0.1)
            await kaiwo.loop.ask(ClusterState.refresh_tables)
            assert not asking.done(), "the scheduler's thread read the text"
            await asking
            changing = asyncio.create_task(kaiwo.post("/policy", {"file": text}))
            longest_s, took_s = await _answers_meanwhile(kaiwo, changing)
            assert longest_s < took_s / 2, f"a change of the policy: {longest_s:.2f} s of {took_s:.2f} s"

    run(story())


def test_why_and_dry_runs_do_not_wait_for_expected_starts_that_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, both waited for up to 90 s, and for the what-if questions of others as well."""
    hanging_worker = forward_worker.WORKER._replace(module="tests.runtime.hanging_worker", longest_s=40.0)
    monkeypatch.setattr(forward_worker, "WORKER", hanging_worker)

    async def story() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            for name in ("first", "second"):
                await kaiwo.submit(name, gpus=8, pods=1, estimate="1h", simulate="1h")
            await kaiwo.submit("third", gpus=1, estimate="1h", simulate="1h")
            await kaiwo.until_state("first", "running")
            eve = await person(kaiwo, "eve", "viewer")
            hanging = asyncio.create_task(eve.ask("POST", "/what-if", {"add_nodes": [{"count": 1}]}))
            await until_asked(kaiwo.context.turns, 1)
            began = time.monotonic()
            for _ in range(2):
                why = await kaiwo.get("/workloads/default/third/why")
                assert why.status_code == 200
                assert why.json()["position"], why.text
            form = {"name": "fourth", "gpus": 1}
            dry_run = await kaiwo.post("/workloads", form, dry_run="true")
            assert "would wait" in dry_run.json()["would"][0]
            assert time.monotonic() - began < 20.0
            hanging.cancel()

    run(story())
