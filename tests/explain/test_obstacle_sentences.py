"""The numbers and words that people read: exact, of the right thing, and never that waiting helps where it cannot."""

import itertools
from decimal import Decimal

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kaiwo.explain import amount, remedy, sentence, why
from kaiwo.model.amounts import compared_memory
from kaiwo.model.events import ReservationChanged
from kaiwo.model.obstacle import (
    ClosestNode,
    LargerNodes,
    MpsOnAmd,
    NotOffered,
    Obstacle,
    Reason,
    SearchGaveUp,
    SizeBound,
)
from kaiwo.model.request import Request
from kaiwo.model.reservation import Reservation
from tests.worlds import World


def told(world: World, name: str) -> list[tuple[str, str]]:
    world.settle()
    found = why(world.state, f"default/{name}", world.policy, world.now_s).obstacles
    return [(each.sentence, each.remedy) for each in found]


# Amounts


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (196_608, "mib", "192 GiB"),
        (196_609, "mib", "196609 MiB"),
        (192_000, "mib", "187.5 GiB"),
        (20 << 20, "mib", "20 TiB"),
        (20_480 << 20, "mib", "20480 TiB"),
        (2 << 20, "mib", "2 TiB"),
        (4_096, "mib", "4 GiB"),
        (0, "mib", "0 MiB"),
        (500, "milli-gpu", "0.5 GPU"),
        (1_000, "milli-gpu", "1 GPU"),
        (1_234_567, "milli-gpu", "1234.567 GPUs"),
        (10_000_000, "gpus", "10000000 GPUs"),
        (1, "devices", "1 device"),
        (70_001, "milli-cpu", "70.001 CPUs"),
        (0, "pods", "0 pods"),
        (17_000_000_000, "milli-cpu", "17000000 CPUs or more"),
        (1 << 34, "mib", "16384 TiB or more"),
        (16_000_000, "gpus", "16000000 GPUs or more"),
        (7, "", "7"),
    ],
)
def test_amounts(value: int, unit: str, words: str) -> None:
    assert amount(value, unit) == words


@pytest.mark.parametrize(
    ("need", "have", "words"),
    [
        (250_000, 196_608, ("250000 MiB", "196608 MiB")),
        (512, 196_608, ("0.5 GiB", "192 GiB")),
        (2 << 20, 100 << 10, ("2048 GiB", "100 GiB")),
        (3 << 20, 3 << 19, ("3 TiB", "1.5 TiB")),
        (4096, 0, ("4 GiB", "0 GiB")),
    ],
)
def test_memory_that_is_compared_has_one_unit(need: int, have: int, words: tuple[str, str]) -> None:
    assert (amount(need, "mib", have), amount(have, "mib", need)) == words


@given(
    st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.sampled_from(["mib", "milli-gpu", "milli-cpu", "gpus", "pods"])
)
def test_what_differs_reads_differently(one: int, other: int, unit: str) -> None:
    assert (amount(one, unit) == amount(other, unit)) == (one == other)


def test_a_device_that_is_one_mib_too_small_looks_too_small() -> None:
    ((what, way_out),) = told(World().submit("m1", memory_mib=196_609), "m1")
    assert what == "it asks for 196609 MiB of one GPU, but the largest GPU has 196608 MiB"
    assert way_out == "ask for 196608 MiB or less; waiting does not help"


def test_sizes_are_told_in_gib_in_the_sentence_and_in_the_remedy() -> None:
    ((what, way_out),) = told(World().submit("m1", memory_mib=250_000), "m1")
    assert what == "it asks for 244.1 GiB of one GPU, but the largest GPU has 192 GiB"
    assert way_out == "ask for 192 GiB or less; waiting does not help"


@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
@example(973, 1024)  # both would be 1 GiB
def test_who_asks_for_what_there_is_gets_it(need: int, have: int) -> None:
    words = compared_memory(need, have)
    number, unit = words[1].split()
    assert Decimal(number) * {"MiB": 1, "GiB": 1 << 10, "TiB": 1 << 20}[unit] <= have
    assert words[0].split()[1] == unit
    assert (words[0] == words[1]) == (need == have)


# Sizes that no node has


@pytest.mark.parametrize(
    ("request_", "what", "way_out"),
    [
        (Request(cpu_milli=300_000), "it asks for 300 CPUs on one node, but the largest node has 192 CPUs", "192 CPUs"),
        (
            Request(memory_mib=20 << 20),
            "it asks for 20 TiB of memory on one node, but the largest node has 2 TiB",
            "2 TiB",
        ),
        (
            Request(extended=(("nic", 3),)),
            "it asks for 3 of nic on one node, but the largest node has 2",
            "2",
        ),
    ],
)
def test_what_no_node_could_ever_hold_is_told_in_sizes(request_: Request, what: str, way_out: str) -> None:
    world = World(nodes=0).node("n", extended={"nic": 2}).running("old", gpus=1, cpu_milli=1_000)
    found = told(world.submit("new", request=request_), "new")
    assert found == [(what, f"ask for {way_out} or less; waiting does not help")]


def test_nodes_that_take_no_pods_are_not_worth_waiting_for() -> None:
    found = told(World(nodes=0).node("n", pods=0).submit("new", cpu_milli=1), "new")
    assert found == [("no node accepts any pods", "no node in this cluster can run it")]


def test_what_is_only_taken_now_is_worth_waiting_for() -> None:
    world = World().submit("old", cpu_milli=190_000)
    world.settle()
    ((what, way_out),) = told(world.submit("new", cpu_milli=100_000), "new")
    assert what == "it needs 100 CPUs free on one node, but no node has more than 2 CPUs free"
    assert way_out == "ask for 2 CPUs or less, or wait for running work to end"


def test_a_large_node_that_is_closed_is_worth_waiting_for() -> None:
    world = World(nodes=0).node("small", cpu_milli=8_000).node("large", cpu_milli=64_000, cordoned=True)
    *_, (what, way_out) = told(world.submit("new", cpu_milli=32_000), "new")
    assert what == "it asks for 32 CPUs on one node, but the largest node that it may use has 8 CPUs"
    assert way_out == "ask for 8 CPUs or less, or wait until it may use a larger one"
    *_, (_, way_out) = told(world.submit("huge", cpu_milli=99_000), "huge")
    assert way_out == "ask for 8 CPUs or less; waiting does not help"


# Reservations


def test_a_reservation_that_is_over_is_not_waited_for() -> None:
    world = World().tell(ReservationChanged(Reservation("r1", gpus=4, start_s=10, end_s=20)))
    world.submit("named", gpus_each=1, reservation="r1").settle()
    assert told(world, "named")[0][1].startswith("wait for it to start, or name another reservation")
    world.now_s = 30
    world.settle()
    assert told(world, "named") == [
        ("it names reservation 'r1', which is over or never existed",
         "name another reservation or none (kaiwo reservations lists them)"),
    ]  # fmt: skip


def test_what_a_reservation_is_too_small_for_names_the_reservation() -> None:
    world = World().tell(ReservationChanged(Reservation("pool", gpus=4)))
    world.settle()
    found = told(world.submit("r2", gpus_each=5, reservation="pool"), "r2")
    assert found[0] == (
        "it asks for 5 GPUs on one node, but reservation 'pool' has at most 4 GPUs on one node",
        "ask for 4 GPUs or fewer; waiting does not help",
    )
    found = told(world.submit("r3", memory_mib=200_000, reservation="pool"), "r3")
    assert found[0][0] == "it asks for 195.3 GiB of one GPU, but the largest GPU of reservation 'pool' has 192 GiB"
    world.submit("r4", gpus_each=3, reservation="pool").settle()
    found = told(world.submit("r5", gpus_each=2, reservation="pool"), "r5")
    assert found[0][0] == "it needs 2 GPUs free on one node, but no node has more than 1 GPU of reservation 'pool' free"


def test_what_reserved_gpus_would_not_mend_either_is_not_worth_waiting_for() -> None:
    world = World().tell(ReservationChanged(Reservation("pool", gpus=4)))
    world.settle()
    found = told(world.submit("many", fraction_milli=500, gpus_each=12), "many")
    assert "ask for 4 devices or fewer; waiting does not help" in [way_out for _, way_out in found]
    found = told(world.submit("some", gpus_each=6), "some")
    assert "ask for 4 GPUs or fewer, or wait until it may use a larger one" in [way_out for _, way_out in found]


# Making room


def test_work_without_gpus_is_not_told_of_gpus() -> None:
    world = World(nodes=2).queue("a").queue("b")
    for number in range(2):
        world.submit(f"old-{number}", cpu_milli=150_000, gpus_each=1, queue="a").settle()
    world.submit("new", pods=2, cpu_milli=180_000, queue="b", submitted_s=9)
    for what, _ in told(world, "new"):
        assert "GPU" not in what, what
    no_way = Obstacle(Reason.NO_WAY_TO_RECLAIM, 0, 44_496, "milli-gpu", "b", SearchGaveUp(3))
    assert sentence(no_way) == (
        "work in other queues may be evicted for it, but no way to make room was found "
        "(undecided: 3 running pods or gangs were tried in order, but not every combination of them)"
    )


def test_every_reason_has_words_for_every_kind_of_facts() -> None:
    facts = (None, *(SizeBound(larger) for larger in LargerNodes), NotOffered(), ClosestNode("node-3"), MpsOnAmd())
    for reason, each, subject in itertools.product(Reason, facts, ("", "thing")):
        obstacle = Obstacle(reason, 4, 2, "gpus", subject, each)
        assert sentence(obstacle)
        assert remedy(obstacle)


def test_an_obstacle_of_an_old_journal_keeps_its_detail() -> None:
    old = b'{"reason":"node-cordoned","need":1,"unit":"nodes","subject":"ready","detail":"7 of 8 nodes"}'
    assert sentence(msgspec.json.decode(old, type=Obstacle)) == "some nodes are cordoned (7 of 8 nodes)"
