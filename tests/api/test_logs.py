"""Reading what processes wrote: all of it, the end of it, and as it comes."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.api.routes import logs as tail_module
from kaiwo.api.routes.logs import follow_attempts, follow_file, read_all
from kaiwo.clusters.protocol import LogFile
from tests.api.world import world
from tests.waiting import run, until


async def joined(chunks: object) -> bytes:
    return b"".join([chunk async for chunk in chunks])  # type: ignore[attr-defined]


@given(st.lists(st.text("ab\n", max_size=20)).map("\n".join), st.integers(0, 12), st.integers(1, 9))
def test_the_last_lines_are_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, text: str, tail: int, chunk: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_text(text)
    size, tail_module.CHUNK = tail_module.CHUNK, chunk
    try:
        found = run(joined(read_all(str(path), tail))).decode()
    finally:
        tail_module.CHUNK = size
    lines = text.splitlines(keepends=True)
    assert found == "".join(lines[len(lines) - tail :] if tail < len(lines) else lines)


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    for path in ("", str(tmp_path / "none"), str(tmp_path), str(tmp_path / "a" / "b")):
        assert run(joined(read_all(path, None))) == b""
        assert run(joined(follow_file(path, lambda: True, 5))) == b""


def test_following_goes_on_through_growth_truncation_and_a_new_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    kept, state = [LogFile(1, str(first), False)], {"over": False}

    async def work() -> None:
        found: list[bytes] = []

        async def follow() -> None:
            async for chunk in follow_attempts(lambda: kept, lambda: state["over"]):
                found.append(chunk)

        task = asyncio.create_task(follow())
        await asyncio.sleep(0.05)
        first.write_bytes(b"one\n")
        await until(lambda: b"".join(found) == b"one\n")
        with first.open("ab") as file:
            file.write(b"two\n")
        await until(lambda: b"".join(found) == b"one\ntwo\n")
        first.write_bytes(b"3\n")
        await until(lambda: b"".join(found) == b"one\ntwo\n3\n")
        second.write_bytes(b"again\n")
        kept[:] = [LogFile(1, str(first), True), LogFile(2, str(second), False)]
        await until(lambda: b"".join(found).endswith(b"again\n"))
        with second.open("ab") as file:
            file.write(b"end")
        kept[1] = LogFile(2, str(second), True)
        state["over"] = True
        await task
        assert b"".join(found) == b"one\ntwo\n3\nagain\nend"

    run(work())


def test_logs_of_a_process_are_followed_to_its_end(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("talks", command=["sh", "-c", "for i in 1 2 3 4; do echo line $i; sleep 0.2; done"])
            followed = await kaiwo.get("/workloads/default/talks/logs", follow="true")
            assert followed.text == "line 1\nline 2\nline 3\nline 4\n"
            assert followed.headers["content-type"] == "text/plain; charset=utf-8"
            assert (await kaiwo.state_of("talks")) == "succeeded"
            assert (await kaiwo.get("/workloads/default/talks/logs", tail=2)).text == "line 3\nline 4\n"
            assert (await kaiwo.get("/workloads/default/talks/logs", tail=0)).text == ""
            assert (await kaiwo.get("/workloads/default/talks/logs", pod="main-0")).text.startswith("line 1")
            strange = await kaiwo.get("/workloads/default/talks/logs", pod="main-7")
            assert strange.status_code == 404
            assert (await kaiwo.get("/workloads/default/ghost/logs")).status_code == 404
            await kaiwo.submit("waits", hold=True)
            assert (await kaiwo.get("/workloads/default/waits/logs")).text == ""

    run(work())


def test_every_attempt_has_its_log(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("ft", command=["sh", "-c", "echo try $KAIWO_ATTEMPT; exit 1"], retries=2)
            await kaiwo.until_state("ft", "failed")
            at = "/workloads/default/ft"
            assert (await kaiwo.get(at + "/logs", follow="true")).text == "try 1\ntry 2\ntry 3\n"
            assert (await kaiwo.get(at + "/logs")).text == "try 3\n"
            assert (await kaiwo.get(at + "/logs", follow="true", tail=1)).text == "try 3\n"
            assert (await kaiwo.get(at + "/logs", attempt=1)).text == "try 1\n"
            assert (await kaiwo.get(at + "/logs", attempt=2, follow="true")).text == "try 2\n"
            missing = await kaiwo.get(at + "/logs", attempt=4)
            assert missing.status_code == 404
            assert (
                missing.json()["message"]
                == "workload default/ft has no log of attempt 4; there are logs of attempts: 1, 2, 3"
            )
            kept = (await kaiwo.get(at + "/attempts")).json()
            assert kept["state"] == "failed"
            assert kept["attempts"] == [{"attempt": number, "is_over": True} for number in (1, 2, 3)]

    run(work())


def test_whoever_stops_following_is_forgotten(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("waits", hold=True)
            path = "/api/v1/workloads/default/waits/logs?follow=true"
            async with kaiwo.client.stream("GET", path) as response:
                assert response.status_code == 200
                await until(lambda: kaiwo.context.streams.count == 1)
            await until(lambda: kaiwo.context.streams.count == 0, "the follower to be forgotten")
            async with kaiwo.client.stream("GET", path) as response:
                await kaiwo.delete("/workloads/default/waits")
                assert await response.aread() == b"", "it ends when the workload does"

    run(work())
