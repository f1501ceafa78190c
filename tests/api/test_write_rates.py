"""How many changes one person, all people and the owner may make: nobody uses up the room of others."""

import asyncio
from pathlib import Path

import pytest

from kaiwo.api.security import rate_limits
from kaiwo.api.security.rate_limits import WriteRates
from tests.api.people import person
from tests.api.world import world


class Hand:
    """A clock that is moved by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def taken(rates: WriteRates, name: str, tries: int) -> int:
    return sum(rates.take(name) == 0 for _ in range(tries))


def test_one_person_gets_a_quarter_and_the_next_one_as_much() -> None:
    rates = WriteRates(4.0, 40.0, Hand())
    assert taken(rates, "ada", 100) == 10
    assert taken(rates, "bob", 100) == 10
    assert taken(rates, "ada", 1) == 0


def test_all_people_together_leave_the_room_of_the_owner() -> None:
    rates = WriteRates(4.0, 40.0, Hand())
    assert sum(taken(rates, f"p{number}", 100) for number in range(50)) == 40
    assert rates.take("late") >= 1
    assert taken(rates, "", 100) == 40


def test_whoever_is_refused_is_told_when_to_come_back_and_takes_nothing_from_others() -> None:
    clock = Hand()
    rates = WriteRates(4.0, 40.0, clock)
    assert taken(rates, "ada", 10_000) == 10
    assert rates.take("ada") == 1
    assert taken(rates, "bob", 100) + taken(rates, "cy", 100) + taken(rates, "di", 100) == 30
    clock.now += 1.0
    assert taken(rates, "ada", 100) == 1, "a quarter of four a second"
    assert taken(rates, "bob", 100) == 1


def test_only_so_many_people_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "MAX_PEOPLE", 3)
    rates = WriteRates(4.0, 4e6, Hand())
    for number in range(10):
        rates.take(f"p{number}")
    assert list(rates._people) == ["p7", "p8", "p9"]


def test_a_flood_of_one_person_delays_neither_another_nor_the_owner(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, settings={"writes_per_s": 0.5, "writes_burst": 40.0}) as kaiwo:
            ada, bob = await person(kaiwo, "ada", "user", "*"), await person(kaiwo, "bob", "user", "*")
            second = await person(kaiwo, "ada", "operator")
            statuses = [(await ada.submit(f"a{number}")).status_code for number in range(14)]
            assert statuses == [201] * 10 + [429] * 4
            refused = await second.submit("again")
            assert refused.status_code == 429, "another token of the same person is no way around it"
            assert int(refused.headers["retry-after"]) >= 1
            assert (await bob.submit("b")).status_code == 201
            assert (await kaiwo.post("/workloads", {"name": "of-the-owner"})).status_code == 201

    asyncio.run(test())
