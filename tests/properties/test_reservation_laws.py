"""Laws of reservations, on random worlds in which reservations, work, devices and time come and go.

Who may be where is worked out here from the objects alone, never with the arrays that decide uses.
"""

import msgspec
import pytest

from kaiwo.decide import decide
from kaiwo.decide.reservations import matching_gpus
from kaiwo.model.events import Event, PodChanged, ReservationChanged
from kaiwo.model.plan import Plan, encode_plan
from kaiwo.model.reservation import PhysicalDevice, Reservation, ReservationPhase
from kaiwo.model.workload import Phase, Pod, Workload
from kaiwo.snapshot.cluster_state import ClusterState
from tests.conftest import IS_FULL, IS_QUICK
from tests.properties.reserved_worlds import ReservedWorld
from tests.worlds import World, audit

WORLDS = 1500 if IS_FULL else 6 if IS_QUICK else 45
STEPS = 40


@pytest.mark.parametrize("block", range(3))
def test_reservations_keep_their_laws(block: int) -> None:
    for seed in range(block * WORLDS // 3, (block + 1) * WORLDS // 3):
        story = ReservedWorld(seed)
        for number in range(STEPS):
            story.step()
            try:
                _live(story.world)
            except AssertionError as error:
                raise AssertionError(f"world {seed}, step {number}: {error}") from error


def test_a_picture_made_anew_decides_the_same_to_the_byte() -> None:
    for seed in range(0, WORLDS, 5):
        story = ReservedWorld(seed)
        for _ in range(STEPS):
            story.step()
        world = story.world
        events = list(world.state.events())
        story.draw.shuffle(events)
        plans = []
        for copies in (events, msgspec.msgpack.decode(msgspec.msgpack.encode(events[::-1]), type=list[Event])):
            again = World(nodes=0)
            again.tell(*copies)
            again.now_s = world.now_s
            plans.append([encode_plan(plan) for plan in again.settle()])
        assert plans[0] == plans[1], f"world {seed}"


def _live(world: World) -> None:
    """Cycles until all is quiet; after each of them nobody is where they may not be."""
    for _ in range(60):
        before = {(pod.workload, pod.name) for pods in world.state.pods.values() for pod in pods.values()}
        snapshot = world.snapshot()
        plan = decide(snapshot, world.policy, world.plugins)
        assert encode_plan(plan) == encode_plan(decide(world.snapshot(), world.policy, world.plugins)), "two answers"
        world.after(plan)
        _check_strangers(world, plan, before)
        _check_expiry(world, plan)
        assert not audit(world.state)
        world.let_go()
        if not (plan.starts or plan.evictions or plan.unfinished or plan.reserved):
            return
    raise AssertionError(f"it never settles: {plan}")


def _check_strangers(world: World, plan: Plan, before: set[tuple[str, str]]) -> None:
    """While a reservation is active no stranger's pod is on its devices, unless it was there and is leaving, or was
    there and may not be told to go; and nobody was started who could not be gone by the start."""
    state, now_s = world.state, world.now_s
    told = {(each.workload, each.pod) for each in plan.evictions}
    for pods in state.pods.values():
        for pod in pods.values():
            workload = state.workloads.get(pod.workload)
            if workload is None or pod.phase is Phase.DONE:
                continue
            is_new = (pod.workload, pod.name) not in before
            for reservation in _against(state, pod, workload, now_s):
                where = f"{pod.workload}/{pod.name} on {pod.node} against {reservation.name}"
                if reservation.phase(now_s) is ReservationPhase.ACTIVE:
                    assert not is_new, f"a stranger was started: {where}"
                    is_leaving = (pod.workload, pod.name) in told or pod.phase is Phase.RELEASING
                    is_excused = reservation.gpus > matching_gpus(state.node_objects, reservation)
                    assert is_leaving or is_excused or not workload.preemptible, f"a stranger stays: {where}"
                elif is_new and not workload.preemptible:
                    ends_s = now_s + workload.time_limit_s if workload.time_limit_s else 1 << 60
                    assert ends_s <= reservation.start_s, f"it would outlast the beginning: {where}"


def _against(state: ClusterState, pod: Pod, workload: Workload, now_s: int) -> list[Reservation]:
    """The reservations of a pod's devices that do not admit it. Of several active ones the strongest counts."""
    line = (workload.queue,)
    found = []
    for share in pod.devices:
        live = [r for r in state.reservations.objects.values() if now_s < r.until_s and _has(r, pod.node, share.gpu)]
        live.sort(key=lambda r: (r.gpus > 0, r.rank))
        active = [r for r in live if now_s >= r.start_s]
        found += [r for r in (*active[:1], *(r for r in live if now_s < r.start_s)) if not r.admits(workload, line)]
    return found


def _has(reservation: Reservation, node: str, gpu: str) -> bool:
    return node in reservation.nodes or PhysicalDevice(node, gpu) in reservation.kept


def _check_expiry(world: World, plan: Plan) -> None:
    """Nothing starts or stays up past its expiry."""
    told = {(each.workload, each.pod) for each in plan.evictions}
    for name, workload in world.state.workloads.items():
        if 0 < workload.expires_s <= world.now_s:
            pods = world.state.pods.get(name, {}).values()
            up = [pod for pod in pods if pod.phase in (Phase.ASSUMED, Phase.RUNNING)]
            assert all((name, pod.name) in told for pod in up), f"{name} outlived its allocation"
            assert name not in {start.workload for start in plan.starts}


def test_two_pictures_with_picks_in_other_places_keep_them() -> None:
    """A place that was picked is part of the state: whoever takes over keeps it, wherever it is."""
    story = ReservedWorld(1)
    world = story.world.node("far", gpus=4)
    there = Reservation("r0", gpus=2, picked=(PhysicalDevice("far", "gpu-2"), PhysicalDevice("far", "gpu-3")))
    world.tell(ReservationChanged(there))
    assert all(not plan.reserved for plan in world.settle())
    assert not [event for event in world.state.events() if isinstance(event, PodChanged)]
