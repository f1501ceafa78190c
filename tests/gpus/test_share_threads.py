"""The threads of a share by MPS: fewer than its share always, more only as far as its queue allows."""

from typing import Any

import pytest
from msgspec.structs import replace

from kaiwo.clusters.ledger import Misfit
from kaiwo.clusters.plan_checks import check_devices
from kaiwo.clusters.queue_access import check_threads
from kaiwo.devices.sharing.grants import decide_grant, grant_environment
from kaiwo.devices.sharing.share_types import GpuDevice, Grant, GrantRequest, IsolationSupport
from kaiwo.model.digest import digest
from kaiwo.model.errors import RefusedError
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.plan import Start
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from tests.manifests.texts import check_refusal, pod, request_of
from tests.worlds import World


def share(threads: int, milli: int = 400) -> Request:
    return Request(gpus=1, gpu_milli=milli, isolation="mps", threads_milli=threads)


def threads_of(world: World, name: str) -> int:
    (found,) = (each for pod in world.state.pods[f"default/{name}"].values() for each in pod.devices)
    return found.threads_milli


def two_queues(**bounds: int) -> World:
    """`team` is below `lab`."""
    world = World(nodes=0).node("a", gpus=1, model="H200")
    for name, parent in (("lab", ""), ("team", "lab")):
        world.queue(name, parent, max_threads_milli=bounds.get(name, 0))
    return world


@pytest.mark.parametrize(
    ("asked", "bounds", "given"),
    [(0, {}, 0), (100, {}, 100), (400, {}, 400), (600, {}, 400), (600, {"team": 600}, 600), (900, {"team": 600}, 600),
     (900, {"team": 900, "lab": 700}, 700), (900, {"lab": 700}, 700), (900, {"lab": 100}, 400)],
)  # fmt: skip
def test_a_share_gets_the_threads_that_it_asks_for_as_far_as_its_queues_allow(
    asked: int, bounds: dict[str, int], given: int
) -> None:
    world = two_queues(**bounds).submit("work", request=share(asked), queue="team")
    world.settle()
    assert threads_of(world, "work") == given
    state = world.state
    is_refused = given < asked
    if is_refused:
        with pytest.raises(RefusedError, match=r"spec\.maxThreads of (team|lab)"):
            check_threads(state.queue_objects, "default/work", "team", [share(asked)])
    else:
        check_threads(state.queue_objects, "default/work", "team", [share(asked)])


@pytest.mark.parametrize(
    ("label", "given"), [("100", 800), ("80", 800), ("60", 600), ("10", 400), ("much", 400), ("", 400)]
)
def test_a_node_may_allow_fewer_threads_but_never_fewer_than_the_share(label: str, given: int) -> None:
    world = World(nodes=0).node("a", gpus=1, model="H200", labels={"kaiwo.ai/gpu-max-threads": label})
    world.queue("lab", max_threads_milli=800).submit("work", request=share(800), queue="lab")
    world.settle()
    assert threads_of(world, "work") == given


def test_a_bound_that_is_lowered_holds_for_work_that_waits() -> None:
    world = two_queues(lab=800).submit("first", gpus_each=1, queue="team")
    world.settle()
    world.submit("waits", request=share(800), queue="team").settle()
    world.queue("lab", max_threads_milli=500).finish("first").settle()
    assert threads_of(world, "waits") == 500


def test_a_queue_that_moves_below_a_bound_takes_it_over() -> None:
    world = two_queues(lab=500).queue("team", max_threads_milli=900).submit("first", gpus_each=1, queue="team")
    world.settle()
    world.submit("waits", request=share(900), queue="team").settle()
    world.queue("team", "lab", max_threads_milli=900).finish("first").settle()
    assert threads_of(world, "waits") == 500


def test_threads_change_neither_the_charge_nor_what_fits_beside_them() -> None:
    world = two_queues(lab=1000)
    for name in ("a", "b"):
        world.submit(name, request=share(1000, milli=500), queue="team")
    world.settle()
    assert threads_of(world, "a") == threads_of(world, "b") == 1000
    assert world.is_within_capacity()
    assert world.state.used["team"][0] == 1000


def test_a_plan_that_gives_more_threads_than_were_asked_for_is_refused() -> None:
    work = Workload("default/work", (Role(share(300)),))
    for threads, is_right in ((0, True), (300, True), (301, False)):
        start = Start("default/work", "main-0", "a", (Share("gpu-0", 400, 100, threads_milli=threads),))
        assert isinstance(check_devices(work, start, {}), Misfit) is not is_right


@pytest.mark.parametrize(("threads", "percent"), [(0, "40"), (150, "15"), (900, "90")])
def test_the_process_gets_them_as_its_mps_percentage(threads: int, percent: str) -> None:
    device = GpuDevice("gpu-0", "nvidia", 0, "GPU-1", memory_mib=1000)
    request = GrantRequest("work", (Share("gpu-0", 400, 400, threads_milli=threads),))
    grant = decide_grant(request, {"gpu-0": device}, IsolationSupport(mps_control="/bin/mps"), ())
    assert isinstance(grant, Grant)
    assert grant_environment(grant, ["nvidia"], "/mps")["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == percent


def form(**fields: Any) -> dict[str, Any]:
    return {"name": "w", **fields}


def test_threads_are_read_from_forms_and_annotations_and_ask_for_mps() -> None:
    for document in (
        form(gpuFraction=0.4, gpuThreads=60),
        pod({"kaiwo.ai/gpu-fraction": "0.4", "kaiwo.ai/gpu-threads": "60"}),
    ):
        request = request_of(document)
        assert (request.threads_milli, request.isolation) == (600, "mps")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpuFraction": 0.4, "gpuModels": ["MI300X"]}, ["AMD GPUs have none", "remove it"]),
        ({"gpuFraction": 0.4, "gpuIsolation": "cu-mask"}, ["AMD GPUs have none"]),
        ({"gpuFraction": 0.4, "gpuIsolation": "time-slicing"}, ["setting of MPS", "time-slicing"]),
        ({"gpuMemory": "4Gi"}, ["add gpuFraction"]),
        ({"gpus": 1}, ["add gpuFraction"]),
    ],
)
def test_threads_without_a_share_by_mps_are_refused(fields: dict[str, Any], words: list[str]) -> None:
    check_refusal(form(gpuThreads=60, **fields), "gpuThreads", words)


def test_a_request_without_them_is_digested_as_before() -> None:
    """Learned run times are stored under these digests."""
    plain = Request(gpus=1, gpu_milli=400)
    assert digest(plain) == "55a50d15d78106ee"
    assert len({digest(each) for each in (plain, share(1), replace(plain, share_with=("user",)))}) == 3
