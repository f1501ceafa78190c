"""What every kind of cluster asks of reservations, what it keeps of them, and how allocations expire."""

from typing import Any

from msgspec.structs import replace

from kaiwo.model.errors import ConfigError, NotFoundError, RefusedError
from kaiwo.model.events import ReservationChanged, ReservationGone
from kaiwo.model.plan import Eviction, EvictionCause, Plan
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import PhysicalDevice, PickedDevices, Reservation, ReservationOwner
from kaiwo.model.workload_record import WorkloadState
from tests.clusters.kinds import Kind, Scene, full, opened
from tests.clusters.test_contract_work import refuses
from tests.waiting import run

LATER_S = 10_000_000_000


def told(scene: Scene) -> dict[str, Reservation]:
    """What a reader of the events believes."""
    found: dict[str, Reservation] = {}
    for event in scene.seen:
        if isinstance(event, ReservationChanged):
            found[event.reservation.name] = event.reservation
        elif isinstance(event, ReservationGone):
            found.pop(event.name, None)
    return found


def test_a_reservation_comes_is_changed_and_goes(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.cluster.work.put(
                [Queue("lab")], [], reservations=[Reservation("a", gpus=4, owner=ReservationOwner(queue="lab"))]
            )
            await scene.settle()
            made_s = told(scene)["a"].created_s
            assert 0 < made_s <= scene.cluster.now_s()
            await scene.cluster.work.put([], [], reservations=[Reservation("a", gpus=2)])
            await scene.settle()
            assert told(scene) == {"a": Reservation("a", gpus=2, created_s=made_s)}
            assert [each.name for each in scene.cluster.work.reservations()] == ["a"]
            await scene.cluster.work.remove([], [], reservations=["a"])
            await scene.settle()
            assert told(scene) == {}
            await refuses(
                scene.cluster.work.remove([], [], reservations=["a"]), NotFoundError, "reservation a does not exist"
            )

    run(test())


def test_what_a_plan_picked_is_kept_and_not_told_to_whoever_decided_it(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.cluster.work.put([], [], reservations=[Reservation("a", gpus=1)])
            await scene.settle()
            seen = len(scene.seen)
            devices = (PhysicalDevice("node-1", "gpu-3"),)
            await scene.cluster.apply(Plan(reserved=(PickedDevices("a", devices),)))
            await scene.settle()
            assert len(scene.seen) == seen
            assert scene.cluster.work.reservations()[0].picked == devices
            await scene.cluster.work.put([], [], reservations=[Reservation("a", gpus=3)])
            await scene.settle()
            assert told(scene)["a"].picked == devices  # what was picked stays, and is added to

    run(test())


def test_what_makes_no_sense_is_refused_and_nothing_of_the_batch_is_kept(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            node = Reservation("exact", nodes=("node-1",), start_s=LATER_S, end_s=LATER_S + 100)
            await scene.cluster.work.put([], [], reservations=[node])
            cases: list[tuple[Reservation, type[Exception], str]] = [
                (Reservation("x"), ConfigError, "exactly one of gpus"),
                (Reservation("x", gpus=1, end_s=5), ConfigError, "would already be over"),
                (Reservation("x", gpus=1, start_s=9, end_s=9), ConfigError, "ends before it begins"),
                (
                    Reservation("x", gpus=1, owner=ReservationOwner(queue="ghost")),
                    RefusedError,
                    "queue ghost, which does not exist",
                ),
                (Reservation("x", nodes=("ghost",)), RefusedError, "node ghost, which does not exist"),
                (
                    Reservation("x", devices=(PhysicalDevice("node-1", "gpu-9"),)),
                    RefusedError,
                    "which has: gpu-0, gpu-1, gpu-2, gpu-3 and 4 more",
                ),
                (
                    Reservation("x", devices=(PhysicalDevice("node-1", "gpu-1"),), start_s=LATER_S + 99),
                    RefusedError,
                    "which reservation exact keeps",
                ),
            ]
            for wrong, kind_of_error, words in cases:
                fine = Reservation("fine", gpus=1)
                await refuses(scene.cluster.work.put([], [], reservations=[fine, wrong]), kind_of_error, words)
            touching = Reservation("next", nodes=("node-1",), start_s=LATER_S + 100)
            await scene.cluster.work.put([], [], reservations=[touching])  # it begins when the other is over
            assert [each.name for each in scene.cluster.work.reservations()] == ["exact", "next"]

    run(test())


def test_an_expired_allocation_ends_its_work_for_good(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            at_s = scene.cluster.now_s() + 1_000_000
            await scene.submit("runs", "waits", expires_s=at_s)
            await scene.start_on("runs")
            expired = (full("runs"), full("waits"))
            plan = Plan(evictions=(Eviction(full("runs"), "main-0", EvictionCause.EXPIRED),), expired=expired)
            await scene.cluster.apply(plan)
            for name in ("runs", "waits"):
                await scene.until_state(name, WorkloadState.CANCELLED)
                assert scene.cluster.record(full(name)).message.startswith("its allocation was granted until ")
            await scene.cluster.apply(plan)  # what is over stays so
            assert scene.cluster.record(full("runs")).state is WorkloadState.CANCELLED

    run(test())


def test_a_requeued_workload_keeps_only_an_expiry_that_is_still_to_come(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            await scene.submit("a", expires_s=scene.cluster.now_s() + 1_000_000)
            await scene.cluster.apply(Plan(expired=(full("a"),)))
            await scene.cluster.work.change("requeue", full("a"))
            assert scene.cluster.record(full("a")).workload.expires_s > 0
            for expires_s in (7, -1):
                late: Any = {"expires_s": expires_s}
                await refuses(scene.submit("b", **late), ConfigError, "would expire before it is submitted")

    run(test())


def test_a_reservation_that_is_over_may_be_applied_again_as_it_is(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            end_s = scene.cluster.now_s() + 30
            await scene.cluster.work.put([], [], reservations=[Reservation("a", gpus=1, end_s=end_s)])
            await scene.submit("clock")
            await scene.start_on("clock")
            await scene.until_state("clock", WorkloadState.SUCCEEDED)  # 60 s of the cluster's time
            await scene.cluster.work.put([], [], reservations=[Reservation("a", gpus=1, end_s=end_s)])
            changed = replace(Reservation("a", gpus=2), end_s=end_s)
            await refuses(scene.cluster.work.put([], [], reservations=[changed]), ConfigError, "already be over")

    run(test())
