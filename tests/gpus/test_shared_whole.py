"""Whole GPUs that may be shared, from what somebody wrote to where it runs: two meet on a GPU, and a third waits."""

import random
from typing import Any

import pytest

from kaiwo.explain import why
from kaiwo.gpus.isolation_grades import grade_of
from kaiwo.manifests import parse
from kaiwo.model.gpus.gpu import MAX_SHARERS, SHARED_MILLI
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.obstacle import Reason
from kaiwo.model.request import Request
from tests.worlds import World, audit

MIB = GPU_MODELS["MI300X"].memory_mib


def written(**fields: Any) -> Request:
    ((workload, _),) = parse({"name": "w", **fields}).submissions
    return workload.roles[0].request


SHARED = written(gpus=1, gpuSharing=True)
FRACTION = written(gpuFraction="0.5")
DEMANDING = written(gpuFraction="0.5", gpuIsolationGrade="cu-mask")


def one_gpu(gpus: int = 1) -> World:
    return World(nodes=1, gpus_per_node=gpus)


def tenants(world: World, gpu: str) -> list[tuple[int, int]]:
    held = (share for pods in world.state.pods.values() for pod in pods.values() for share in pod.devices)
    return [(share.milli, share.mib) for share in held if share.gpu == gpu]


def test_two_meet_on_one_gpu_and_a_third_waits() -> None:
    world = one_gpu()
    for name in ("a", "b", "c"):
        world.submit(name, request=SHARED).settle()
    assert [world.is_running(name) for name in ("a", "b", "c")] == [True, True, False]
    assert tenants(world, "gpu-0") == [(SHARED_MILLI, MIB // MAX_SHARERS)] * MAX_SHARERS
    assert world.is_within_capacity()
    assert world.why("c") == [Reason.NOT_ENOUGH_FREE_GPU_SHARE]
    assert "0.5" in why(world.state, "default/c", world.policy, world.now_s).answer
    world.finish("a").settle()
    assert world.is_running("c")


def test_the_grade_is_that_of_taking_turns() -> None:
    world = one_gpu().submit("a", request=SHARED)
    world.settle()
    (node,) = world.state.node_objects.values()
    assert grade_of(SHARED, node.gpus[0], node.labels) == "time-slicing"


def test_several_gpus_are_several_devices_and_two_such_jobs_have_them_together() -> None:
    world, both = one_gpu(gpus=4), written(gpus=4, gpuSharing=True)
    world.submit("a", request=both).submit("b", request=both).submit("c", request=both).settle()
    assert world.devices_of("a") == world.devices_of("b") == [f"node-0/gpu-{number}" for number in range(4)]
    assert not world.is_running("c")
    assert world.is_within_capacity()


def test_a_queue_is_charged_what_the_books_say() -> None:
    world = one_gpu(gpus=4).queue("lab", gpu_limit=2 * SHARED_MILLI)
    for name in ("a", "b", "c"):
        world.submit(name, request=SHARED, queue="lab").settle()
    assert [world.is_running(name) for name in ("a", "b", "c")] == [True, True, False]
    assert world.is_within_capacity()


@pytest.mark.parametrize("is_shared_first", [True, False])
def test_it_meets_shares_that_demand_nothing_and_none_that_demand_a_mask(is_shared_first: bool) -> None:
    for other, meets in ((FRACTION, True), (DEMANDING, False), (Request(gpus=1), False)):
        world = one_gpu()
        first, second = (SHARED, other) if is_shared_first else (other, SHARED)
        world.submit("first", request=first).settle()
        world.submit("second", request=second).settle()
        assert world.is_running("first")
        assert world.is_running("second") == meets
        assert world.is_within_capacity()


def test_halves_with_a_mask_of_their_own_meet_a_share_that_demands_one() -> None:
    masked = written(gpus=1, gpuSharing=True, gpuIsolation="cu-mask", gpuIsolationGrade="cu-mask")
    world = one_gpu().submit("masked", request=masked).submit("strict", request=DEMANDING)
    world.settle()
    assert world.devices_of("masked") == world.devices_of("strict") == ["node-0/gpu-0"]
    assert world.is_within_capacity()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_and_goes_nothing_is_given_out_twice(seed: int) -> None:
    draw = random.Random(seed)
    world = World(nodes=2, gpus_per_node=3)
    wishes = (
        SHARED, written(gpus=2, gpuSharing=True), written(gpus=3, gpuSharing=True), FRACTION, DEMANDING,
        Request(gpus=1), written(gpuMemory=50_000), written(gpuFraction="0.3", gpuDevices=2),
    )  # fmt: skip
    alive: list[str] = []
    for number in range(60):
        if alive and draw.random() < 0.4:
            world.finish(alive.pop(draw.randrange(len(alive))))
        else:
            alive.append(f"w{number}")
            world.submit(alive[-1], request=draw.choice(wishes), priority=draw.choice((0, 0, 50)))
        for _ in world.settle():
            assert audit(world.state) == []
