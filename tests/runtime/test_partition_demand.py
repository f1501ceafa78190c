"""A mode changes only for work that then starts: not in others' reservations, nor where CPUs or memory are short."""

from pathlib import Path

import pytest

from kaiwo.model.gpus.partition_modes import Mode, partition_gpu
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.model.reservation import PhysicalDevice, Reservation, ReservationOwner
from tests.runtime.test_partitioning_loop import CPX, Play, node, play

NAMED = Reservation("r", nodes=("a",), owner=ReservationOwner(user="ada"), end_s=10**6)
TWO = Reservation(
    "r",
    devices=(PhysicalDevice("a", "gpu-0"), PhysicalDevice("a", "gpu-1")),
    owner=ReservationOwner(user="ada"),
    end_s=10**6,
)


def cut_node(name: str, **more: object) -> Node:
    """All its GPUs are in CPX."""
    whole = node(name)
    return Node(
        name, 640_000, 655_360, pods=500, labels=whole.labels,
        gpus=tuple(part for gpu in whole.gpus for part in partition_gpu(gpu, Mode("CPX", "NPS1"))), **more,
    )  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize("reservation", [NAMED, TWO])
def test_others_never_change_what_is_reserved_and_its_owner_does(tmp_path: Path, reservation: Reservation) -> None:
    count = len(reservation.devices) or 4

    async def story(it: Play) -> None:
        await it.cluster.work.put((), (), reservations=[reservation])
        for number in range(8):
            await it.submit(f"x{number}", Request(gpus=8, partition="CPX"), 1200, user="bob")
        for seconds in (0, 0, 60, 0):
            await it.turn(seconds)
        assert it.modes() == ["SPX"] * count + ["CPX+NPS1"] * (4 - count)
        await it.submit("ada", Request(gpus=count), 60, user="ada")
        await it.turn()
        assert it.runs("ada")
        await it.submit("small", CPX, user="ada")
        for seconds in (400, 0, 60):
            await it.turn(seconds)
        assert it.runs("small")  # the owner's own demand may

    play(tmp_path, story)


def test_a_change_that_was_begun_for_others_is_taken_back_when_the_reservation_begins(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await it.submit("busy", Request(gpus=4), 3600, time_limit_s=3600, user="ada")
        await it.submit("small", CPX, user="bob")
        await it.turn()
        assert it.closed()
        await it.cluster.work.put((), (), reservations=[NAMED])
        await it.turn(1)
        assert it.closed() == []

    play(tmp_path, story)


def test_those_who_may_not_enter_keep_no_mode_from_the_owner(tmp_path: Path) -> None:
    """bob runs there in CPX and more of his work waits for CPX: the owner's demand drains it all the same."""

    async def story(it: Play) -> None:
        await it.submit("early", Request(gpus=32, partition="CPX"), 7200, time_limit_s=7200, user="bob")
        await it.cluster.work.put((), (), reservations=[NAMED])
        await it.submit("late", CPX, user="bob")
        await it.submit("ada", Request(gpus=4), user="ada", preemptible=False)
        await it.turn(1)
        assert {step.change.after.compute for step in it.partitions.planned.steps} == {"SPX"}

    play(tmp_path, story, cut_node("a"))


@pytest.mark.parametrize(
    "want",
    [
        Request(gpus=1, cpu_milli=100_000_000),
        Request(gpus=1, memory_mib=500 * 1024 * 1024),
        Request(gpus=1, extended=(("example.com/camera", 1),)),
        Request(gpus=1, gpu_milli=500, least_grade="memory-capped"),
        Request(gpus=1, gpu_milli=500, isolation="mps"),
    ],
)
def test_nothing_changes_for_work_that_could_not_start_then_either(tmp_path: Path, want: Request) -> None:
    async def story(it: Play) -> None:
        await it.submit("never", want)
        await it.turn()
        assert it.partitions.planned.steps == ()
        await it.submit("now", Request(gpus=1))
        await it.turn()
        assert len(it.partitions.planned.steps) == 1

    play(tmp_path, story, cut_node("a"))


def test_the_cpus_that_others_hold_for_long_are_counted(tmp_path: Path) -> None:
    """Work without GPUs does not go when GPUs drain; work on them does."""

    async def story(it: Play) -> None:
        await it.submit("cpus", Request(cpu_milli=600_000), 7200)
        await it.submit("fat", Request(gpus=1, cpu_milli=100_000))
        await it.turn()
        assert it.partitions.planned.steps == ()
        await it.cluster.work.change("cancel", "default/cpus")
        await it.submit("parts", Request(gpus=32, partition="CPX", cpu_milli=600_000), 7200)
        await it.turn(1)
        assert [step.is_due for step in it.partitions.planned.steps] == [False]

    play(tmp_path, story, cut_node("a"))


def test_a_share_with_a_method_that_the_gpus_have_cuts_them_back(tmp_path: Path) -> None:
    async def story(it: Play) -> None:
        await it.submit("share", Request(gpus=1, gpu_milli=500, isolation="cu-mask"))
        for seconds in (0, 0, 60):
            await it.turn(seconds)
        assert it.runs("share")

    play(tmp_path, story, cut_node("a"))
