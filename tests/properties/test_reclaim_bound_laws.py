"""What is said to be proved is true: no set of victims that the rules allow, stopped or moved, would help."""

from collections import Counter

from kaiwo.decide import decide
from kaiwo.model.obstacle import NodeBound, Obstacle, Reason, ReclaimBound, SearchGaveUp
from tests.conftest import IS_QUICK, SIZE
from tests.properties.exhaustive_victims import NAME, crowded_world, shrinking_world, somebody_could_go
from tests.worlds import World


def test_what_is_proved_no_search_of_all_victims_refutes() -> None:
    proved: Counter[str] = Counter()
    for seed in range(300 if IS_QUICK else 2_000 * SIZE):
        world = crowded_world(seed)
        if world is None or (certificate := certificate_of(world)) is None:
            continue
        proved[certificate.unit or "extended"] += 1
        assert certificate.have < certificate.need, (seed, certificate)
        assert isinstance(certificate.facts, ReclaimBound | NodeBound)
        assert not somebody_could_go(world), (seed, certificate)
    assert IS_QUICK or not {"milli-gpu", "milli-cpu", "mib", "extended", "gpus", "pods"} - set(proved), proved


def test_shares_that_would_shrink_on_larger_devices_refute_no_certificate() -> None:
    proved = 0
    for seed in range(60 if IS_QUICK else 300):
        world = shrinking_world(seed)
        if (certificate := certificate_of(world)) is not None:
            proved += 1
            assert not somebody_could_go(world), (seed, certificate)
    assert proved


def test_nobody_is_told_that_something_is_proved_beside_a_search_that_found_nothing() -> None:
    for seed in range(100 if IS_QUICK else 1_000):
        world = crowded_world(seed)
        for each in told(world) if world is not None else ():
            assert each.reason is not Reason.NO_WAY_TO_RECLAIM or isinstance(each.facts, SearchGaveUp), (seed, each)


def certificate_of(world: World) -> Obstacle | None:
    return next((each for each in told(world) if each.reason is Reason.NOT_ENOUGH_RECLAIMABLE), None)


def told(world: World) -> list[Obstacle]:
    """Why the claim waits, by one cycle that is not carried out."""
    plan = decide(world.snapshot(), world.policy)
    key = world.state.backlog.class_of(NAME).key
    return [each for wait in plan.waits if (wait.queue, wait.shape) == key for each in wait.obstacles]
