"""GET /history: the past of workloads is found as it was, and what nobody knows is said to be unknown."""

from pathlib import Path

import httpx
import pytest

from kaiwo.api.http.query_params import write_cursor
from kaiwo.api.views.answers import Page
from kaiwo.api.views.past import EndedWorkView, HistoryView
from tests.api.past_week import HOUR, MINUTE, WEEK, week_later
from tests.api.world import World, decode, world
from tests.waiting import run, until_answer


async def history(it: World, name: str, **query: object) -> HistoryView:
    answer = await it.get(f"/workloads/default/{name}/history", **query)
    assert answer.status_code == 200, answer.text
    return decode(answer, HistoryView)


def test_work_that_was_evicted_twice_and_ended_a_week_ago_is_told_as_it_was(tmp_path: Path) -> None:
    async def story() -> None:
        async with week_later(tmp_path) as it:
            found = await history(it, "train")
            assert (found.state, found.exit_code, found.user, found.queue) == ("failed", 3, "ada", "default")
            assert WEEK <= found.now_s - found.ended_s <= WEEK + 2 * HOUR
            kinds = [each.kind for each in found.timeline]
            assert kinds == [
                "submitted",
                "started", "evicted", "waited",
                "started", "evicted", "waited",
                "started", "stopped", "ended",
            ]  # fmt: skip
            evictions = [(each.cause, each.beneficiary, each.beneficiary_user) for each in found.evictions]
            assert evictions == [("preempt", "default/urgent", "bob"), ("preempt", "default/rush", "carol")]
            waits = [each for each in found.timeline if each.kind == "waited"]
            assert all("it needs 8 GPUs free on one node" in each.sentence for each in waits)
            assert all(30 * MINUTE <= each.until_s - each.at_s < 31 * MINUTE for each in waits)
            assert [each.attempt for each in found.attempts] == [1, 2, 3]
            assert all(each.devices == [f"node-0/gpu-{at}" for at in range(8)] for each in found.attempts)
            assert "for default/rush of carol" in found.attempts[1].message
            logs = [(await it.get("/workloads/default/train/logs", attempt=at)).text for at in (1, 2, 3)]
            assert logs == ["attempt 1\n", "attempt 2\n", "attempt 3\ngiving up\n"]
            use = found.efficiency
            assert use.used_gpu_milli_s is not None
            assert use.wasted_gpu_milli_s is not None
            assert abs(use.used_gpu_milli_s - 8000 * 1.2 * HOUR) < 8000 * MINUTE, "90 % of one hour and 30 % of another"
            assert use.used_gpu_milli_s + use.wasted_gpu_milli_s == use.measured_gpu_milli_s
            assert use.used_percent == 60
            assert abs(use.held_gpu_milli_s - use.measured_gpu_milli_s - 8000 * 10 * MINUTE) < 8000 * MINUTE
            assert HOUR <= use.waited_s < HOUR + 2 * MINUTE

    run(story())


def test_the_list_finds_what_ended_by_time_user_state_and_queue(tmp_path: Path) -> None:
    async def story() -> None:
        async with week_later(tmp_path) as it:
            await it.submit("fresh", simulate="1s", user="ada")
            await it.until_state("fresh", "succeeded")

            async def names(**query: object) -> list[str]:
                page = decode(await it.get("/history", **query), Page[EndedWorkView])
                assert page.total == len(page.items)
                return [each.workload.removeprefix("default/") for each in page.items]

            await until_answer(names, lambda found: found == ["fresh", "train", "rush", "urgent"], "what just ended")
            assert await names(last=WEEK) == ["fresh"]
            assert await names(last=WEEK + 2 * HOUR, user="ada") == ["fresh", "train"]
            assert await names(state="failed") == ["train"]
            assert await names(queue="default", q="RUSH") == ["rush"]
            assert await names(queue="gone") == []
            first = decode(await it.get("/history", limit=3), Page[EndedWorkView])
            rest = decode(await it.get("/history", limit=3, after=first.next), Page[EndedWorkView])
            assert [each.workload for each in rest.items] == ["default/urgent"]
            assert (first.total, rest.next) == (4, "")
            (train,) = [each for each in first.items if each.workload == "default/train"]
            assert (train.attempts, train.evictions, train.exit_code, train.state) == (3, 2, 3, "failed")
            assert 0 < train.used_gpu_milli_s < train.measured_gpu_milli_s < train.held_gpu_milli_s
            listed = (await it.get("/workloads", ended_since=it.cluster.now_s() - WEEK)).json()["items"]
            assert [each["name"] for each in listed] == ["default/fresh"]

    run(story())


def test_a_name_that_was_used_again_keeps_the_past_of_each_submission(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            await it.submit("job", simulate="1s", user="ada")
            await it.until_state("job", "succeeded")
            await it.submit("job", gpus=8, simulate="1h", user="bob")
            await it.until_state("job", "running")
            now, before = await history(it, "job"), await history(it, "job", submission=1)
            assert (now.submission, now.submissions, now.user, now.state) == (2, [1, 2], "bob", "running")
            assert (before.submission, before.user, before.state) == (1, "ada", "succeeded")
            assert before.timeline[-1].kind == "ended"
            assert now.timeline[-1].kind == "started"
            assert now.exit_code is None
            answer = await it.get("/workloads/default/job/history", submission=7)
            assert answer.status_code == 404
            assert "7" in answer.text

    run(story())


def test_what_nobody_measured_is_unknown_and_not_zero(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            await it.submit("job", gpus=1, simulate="2s")
            await it.until_state("job", "succeeded")
            use = (found := await history(it, "job")).efficiency
            assert (use.used_gpu_milli_s, use.wasted_gpu_milli_s, use.used_percent) == (None, None, None)
            assert use.held_gpu_milli_s in (2000, 3000)
            assert any("no agent measured" in each for each in found.unknown)

    run(story())


def test_the_past_is_whole_after_a_restart_of_kaiwo(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            await it.submit("first", gpus=8, simulate="1h")
            await it.until_state("first", "running")
            await it.submit("second", gpus=8, simulate="1h", user="ada")
            await it.submit("third", gpus=1, simulate="1h", after=["second"])
            await it.context.past.flush()
        async with world(tmp_path, nodes=1) as it:
            await it.delete("/workloads/default/first")
            await it.until_state("second", "running")
            second, third = await history(it, "second"), await history(it, "third")
            kinds = [each.kind for each in second.timeline if each.kind != "waited"]  # for some seconds, if at all
            assert kinds == ["submitted", "started"]
            assert third.timeline[-1].sentence == "waited: it waits for default/second to succeed"
            assert not third.timeline[-1].is_over
            assert (await history(it, "first")).state == "cancelled"

    run(story())


@pytest.mark.parametrize("path", ["/workloads/default/gone/history", "/workloads/default/gone/history?submission=2"])
def test_work_that_never_was_is_not_found(tmp_path: Path, path: str) -> None:
    async def story() -> httpx.Response:
        async with world(tmp_path, nodes=1) as it:
            return await it.get(path)

    answer = run(story())
    assert answer.status_code == 404
    assert "there is no workload 'default/gone'" in answer.text


@pytest.mark.parametrize("position", [[2**63, 1], [1, 2**64 - 1], [10**30, 1], [-1, 0], [None, 1], ["1", "2"], []])
def test_a_cursor_that_somebody_made_up_is_refused_and_is_no_bug(tmp_path: Path, position: list[object]) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            await it.submit("job", simulate="1s")
            await it.until_state("job", "succeeded")
            answer = await it.get("/history", after=write_cursor(position))
            assert answer.status_code == 400
            assert "after is not the `next`" in answer.text

    run(story())
