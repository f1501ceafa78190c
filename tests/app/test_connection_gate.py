"""Which connections stay open: the bounds and the time limits, told with a clock of their own."""

import asyncio

from kaiwo.api.http.connection_counts import CloseCause, ConnectionCounts
from kaiwo.app.connection_gate import (
    BEGUN_AT_ONCE,
    CROWDED_S,
    DROPPED_AT_ONCE,
    HEAD_S,
    REST_S,
    STALLED_S,
    UNREAD_S,
    ConnectionGate,
    Limits,
    Place,
)
from kaiwo.runtime.log import PER_PERIOD, PERIOD_S, EventLimit
from tests.waiting import run, until


class Door:
    """A gate, its clock, and the names of the connections that it closed."""

    def __init__(self, most: int = 4, waiting: int = 2, of_address: int = 3) -> None:
        self.now_s = 1000.0
        self.closed: list[str] = []
        self.counts = ConnectionCounts()
        self.gate = ConnectionGate(Limits(most, waiting, of_address), self.counts, lambda: self.now_s)

    def connect(self, name: str, address: str = "192.0.2.1") -> Place | None:
        if not self.gate.has_room or (place := self.gate.admit(address)) is None:
            return None
        place.close = lambda: self.closed.append(name)
        return place

    def serve(self, name: str, address: str = "192.0.2.1") -> Place:
        place = self.connect(name, address)
        assert place is not None
        self.gate.is_served(place)
        return place

    def after(self, seconds: float) -> "Door":
        self.now_s += seconds
        self.gate.sweep()
        return self


def test_a_connection_without_a_request_is_closed_after_seconds_and_one_that_is_served_stays() -> None:
    door = Door()
    door.connect("silent")
    door.serve("served")
    assert door.after(HEAD_S - 1).closed == []
    assert door.after(2).closed == ["silent"]
    assert door.after(3600).closed == ["silent"]
    assert door.counts.closed[CloseCause.SILENT] == 1
    assert door.counts.open == 1


def test_at_the_bound_the_one_that_has_waited_longest_goes_first() -> None:
    door = Door(waiting=2)
    door.connect("first")
    door.after(2)
    door.connect("second")
    assert door.connect("third") is not None
    assert door.closed == ["first"]


def test_nobody_is_closed_for_another_before_he_could_send_his_request() -> None:
    door = Door(waiting=2)
    door.connect("first")
    door.connect("second")
    assert door.connect("third") is None  # the kernel keeps it
    assert door.closed == []
    door.after(CROWDED_S)
    assert door.connect("third") is not None


def test_who_is_served_is_never_closed_for_another() -> None:
    door = Door(most=2, waiting=2)
    door.serve("one"), door.serve("two")
    door.after(60)
    assert door.connect("third") is None
    assert door.closed == []
    assert door.counts.closed[CloseCause.REFUSED] == 1


def test_one_address_cannot_take_all_places() -> None:
    door = Door(most=4, of_address=2)
    door.serve("one"), door.serve("two")
    assert door.connect("three") is None
    assert door.connect("another", "192.0.2.2") is not None


def test_a_client_that_reads_nothing_is_cut_off_and_makes_room_for_others_even_sooner() -> None:
    door = Door(most=2)
    stalled, reading = door.serve("stalled"), door.serve("reading")
    door.gate.reads(stalled, False)
    door.after(STALLED_S)
    assert door.connect("new") is not None
    assert door.closed == ["stalled"]
    door.gate.reads(reading, False)
    door.after(UNREAD_S / 2)
    door.gate.reads(reading, True)
    assert "reading" not in door.after(UNREAD_S).closed
    door.gate.reads(reading, False)
    assert "reading" in door.after(UNREAD_S).closed


def test_the_end_of_an_answer_must_be_read_in_time() -> None:
    door = Door()
    slow, quick = door.serve("slow"), door.serve("quick")
    for place, left in ((slow, 70_000), (quick, 0)):
        place.unread_bytes = lambda left=left: left
        door.gate.waits(place, CloseCause.SLOW_READER, UNREAD_S)
    assert door.after(UNREAD_S).closed == ["slow"]
    assert door.after(3600).closed == ["slow"]  # how long it is idle after that is uvicorn's affair


def test_the_rest_of_an_answered_request_must_arrive_in_time() -> None:
    door = Door()
    place = door.serve("slow")
    door.gate.waits(place, CloseCause.SLOW_SENDER, REST_S)
    assert door.after(REST_S).closed == ["slow"]
    assert door.counts.closed[CloseCause.SLOW_SENDER] == 1


def test_of_many_requests_a_few_begin_in_each_turn_of_the_event_loop_and_in_their_order() -> None:
    async def work() -> None:
        gate, begun = Door().gate, []
        for number in range(3 * BEGUN_AT_ONCE):
            gate.begin(lambda number=number: begun.append(number))
        for turn in (1, 2, 3):
            assert begun == list(range(turn * BEGUN_AT_ONCE))
            await asyncio.sleep(0)

    run(work())


def test_of_many_requests_that_are_dropped_a_few_parts_are_read_at_a_time() -> None:
    async def work() -> None:
        gate, resumed = Door().gate, []
        read_on = [gate.drop(lambda number=number: resumed.append(number)) for number in range(3 * DROPPED_AT_ONCE)]
        assert read_on == [True] * DROPPED_AT_ONCE + [False] * 2 * DROPPED_AT_ONCE
        assert resumed == []
        await until(lambda: len(resumed) == 2 * DROPPED_AT_ONCE, "all others to be read")
        assert resumed == sorted(resumed)

    run(work())


def test_the_log_has_the_first_events_of_a_kind_and_then_their_number() -> None:
    written: list[dict[str, object]] = []
    now_s = 0.0
    limit = EventLimit(lambda event, **fields: written.append({"event": event, **fields}), lambda: now_s)
    for _ in range(12_350):
        limit.emit("connection-closed", cause="silent")
    limit.emit("connection-closed", cause="refused")
    limit.flush()
    assert len(written) == PER_PERIOD + 1
    now_s = PERIOD_S
    limit.flush()
    assert written[-1] == {
        "event": "connection-closed", "level": "warning", "cause": "silent", "more": 12_345, "in_the_last_s": 60,
    }  # fmt: skip
    assert len(written) == PER_PERIOD + 2
    limit.emit("connection-closed", cause="silent")
    assert len(written) == PER_PERIOD + 3
