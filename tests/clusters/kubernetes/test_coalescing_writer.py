"""The newest value of each object is written, once, and only by the leader."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kaiwo.clusters.kubernetes.client import ApiError, StandbyError, UnreachableError
from kaiwo.clusters.kubernetes.writers import coalescing_writer
from kaiwo.clusters.kubernetes.writers.coalescing_writer import CoalescingWriter, report_failures
from tests.waiting import run, until


class Server:
    """Answers when it may, with the errors that it is given."""

    def __init__(self, *errors: Exception) -> None:
        self.written: list[tuple[str, int]] = []
        self.errors, self.may_answer = list(errors), asyncio.Event()
        self.in_flight = self.most_in_flight = 0

    async def write(self, key: str, value: int) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.may_answer.wait()
            self.written.append((key, value))
            if self.errors:
                raise self.errors.pop(0)
        finally:
            self.in_flight -= 1


def writer_to(server: Server, failures: list[Any] | None = None, **options: Any) -> CoalescingWriter[int]:
    client: Any = SimpleNamespace(may_write=True)
    listed = failures if failures is not None else []
    return CoalescingWriter(client, server.write, lambda key, value, error: listed.append((key, value)), **options)


async def idle(writer: CoalescingWriter[int]) -> None:
    await until(lambda: not writer._tasks, "the writer is idle")


def test_a_value_that_a_newer_one_replaced_is_never_written() -> None:
    async def test() -> None:
        server = Server()
        writer = writer_to(server, at_once=4)
        writer.put("a", 1)
        await until(lambda: server.in_flight, "the first write")
        for value in (2, 3, 3):
            writer.put("a", value)
        assert writer.has_newer("a", 1)
        server.may_answer.set()
        await idle(writer)
        assert server.written == [("a", 1), ("a", 3)]
        assert server.most_in_flight == 1
        writer.put("a", 3)  # somebody else may have changed the object meanwhile
        await idle(writer)
        assert server.written[-1] == ("a", 3)
        assert len(server.written) == 3

    run(test())


def test_no_more_writes_than_allowed_are_in_flight_at_once() -> None:
    async def test() -> None:
        server = Server()
        writer = writer_to(server, at_once=2)
        for number in range(6):
            writer.put(f"k-{number}", number)
        await until(lambda: server.in_flight == 2, "two writes")
        writer.drop("k-5")
        server.may_answer.set()
        await idle(writer)
        assert sorted(server.written) == [(f"k-{number}", number) for number in range(5)]
        assert server.most_in_flight == 2

    run(test())


def test_a_failed_write_is_tried_again_with_the_newest_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing_writer, "RETRY_FIRST_S", 0.01)

    async def test() -> None:
        server, failures = Server(UnreachableError("away"), ApiError(500, "", "no")), []
        writer = writer_to(server, failures)
        writer.put("a", 1)
        await until(lambda: server.in_flight, "the first write")
        writer.put("a", 2)
        server.may_answer.set()
        await idle(writer)
        assert server.written == [("a", 1), ("a", 2), ("a", 2)]
        assert failures == [("a", 1), ("a", 2)]

    run(test())


@pytest.mark.parametrize("error", [StandbyError("PATCH /x"), ApiError(404, "NotFound", "gone")])
def test_where_another_try_is_of_no_use_the_value_is_dropped(error: Exception) -> None:
    reported: list[str] = []

    async def test() -> None:
        server = Server(error)
        server.may_answer.set()
        client: Any = SimpleNamespace(may_write=True)
        failed = report_failures(lambda event, **_: reported.append(event), "status-failed", "queue")
        writer = CoalescingWriter(client, server.write, failed)
        writer.put("a", 1)
        await idle(writer)
        assert server.written == [("a", 1)]
        client.may_write = False
        writer.put("a", 2)  # another replica leads
        assert not writer._tasks

    run(test())
    assert not reported


def test_what_waits_is_written_when_the_writer_closes() -> None:
    async def test() -> None:
        server = Server()
        writer = writer_to(server, pause_s=60.0)
        server.may_answer.set()
        writer.put("a", 1)
        await until(lambda: server.written, "the first write")
        writer.put("a", 2)  # waits for the pause to end
        await writer.close()
        assert server.written == [("a", 1), ("a", 2)]
        assert not writer._tasks

    run(test())


def test_a_write_that_does_not_end_does_not_keep_the_writer_from_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing_writer, "CLOSE_S", 0.01)

    async def test() -> None:
        server = Server()
        writer = writer_to(server)
        writer.start(lambda: None)
        writer.put("a", 1)
        await writer.close()
        assert server.written == []
        assert not writer._tasks

    run(test())


def test_values_are_reviewed_while_this_replica_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing_writer, "REVIEW_S", 0.01)
    seen: list[str] = []

    async def test() -> None:
        server = Server()
        client: Any = SimpleNamespace(may_write=True)
        writer = CoalescingWriter(client, server.write, lambda *_: None)
        writer.start(lambda: seen.append("review"), lambda: seen.append("stand by"))
        await until(lambda: "review" in seen, "a review")
        client.may_write = False
        await until(lambda: "stand by" in seen, "a review on standby")
        await writer.close()

    run(test())
