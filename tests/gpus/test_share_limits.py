"""Bounds and defaults of one share: its memory, and its threads where it asks for none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.clusters.ledger import Ledger, Misfit
from kaiwo.clusters.plan_checks import Owners, check_devices, find_misfit
from kaiwo.clusters.queue_access import check_shares
from kaiwo.explain import why
from kaiwo.manifests import parse
from kaiwo.model.errors import RefusedError
from kaiwo.model.gpus.gpu import ANY_MIB, Gpu, Share, most_share_mib
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import Start
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload
from kaiwo.snapshot.cluster_state import ClusterState
from tests.manifests.texts import check_refusal, queue
from tests.worlds import World

H200_MIB = GPU_MODELS["H200"].memory_mib
HALF_MIB = H200_MIB // 2
MAX_MEMORY, DEFAULT_THREADS = "kaiwo.ai/gpu-max-share-memory", "kaiwo.ai/gpu-default-threads"


def half(mib: int = 0, **changes: Any) -> Request:
    return Request(gpus=1, gpu_milli=500, gpu_mib=mib, **changes)


def memory(mib: int) -> Request:
    return Request(gpus=1, gpu_mib=mib)


def lab(most_mib: int = 0, of_team_mib: int = 0, model: str = "H200", **labels: str) -> World:
    """`team` is below `lab`; the node has one GPU."""
    world = World(nodes=0).node("a", gpus=1, model=model, labels=labels)
    return world.queue("lab", max_share_mib=most_mib).queue("team", "lab", max_share_mib=of_team_mib)


def threads_of(world: World, name: str) -> list[int]:
    return [each.threads_milli for pod in world.state.pods[f"default/{name}"].values() for each in pod.devices]


@pytest.mark.parametrize(
    ("request_", "bounds", "starts"),
    [
        (half(), (HALF_MIB, 0), True),
        (half(), (HALF_MIB - 1, 0), False),
        (half(), (0, HALF_MIB), True),
        (half(), (0, HALF_MIB - 1), False),
        (half(), (HALF_MIB - 1, ANY_MIB), False),
        (half(), (ANY_MIB, HALF_MIB - 1), False),
        (memory(1000), (1000, 0), True),
        (memory(1001), (1000, 0), False),
        (half(HALF_MIB + 5), (HALF_MIB + 5, 0), True),
        (half(HALF_MIB + 5), (HALF_MIB + 4, 0), False),
        (Request(gpus=1), (1, 1), True),  # a whole GPU is no share
        (Request(cpu_milli=1000), (1, 1), True),
    ],
)
def test_no_share_is_larger_than_its_queues_allow(request_: Request, bounds: tuple[int, int], starts: bool) -> None:
    world = lab(*bounds).submit("work", request=request_, queue="team")
    world.settle()
    assert world.is_running("work") is starts
    assert world.why("work") == ([] if starts else [Reason.SHARE_TOO_LARGE])


@pytest.mark.parametrize(
    ("label", "mib"),
    [("1000", 1000), ("1000Mi", 1000), ("16Gi", 16 << 10), ("1Ti", 1 << 20), ("0", 0), ("16G", 0), ("much", 0), ("", 0),
     ("-1", 0), ("1.5Gi", 0), ("99999999Ti", ANY_MIB)],
)  # fmt: skip
def test_a_node_bounds_the_shares_of_its_gpus_and_a_mistyped_label_allows_none(label: str, mib: int) -> None:
    assert most_share_mib({MAX_MEMORY: label}) == mib
    assert most_share_mib({}) == ANY_MIB


def test_the_bound_of_a_node_holds_there_alone_and_follows_its_label() -> None:
    world = lab(**{MAX_MEMORY: "10Gi"}).submit("work", request=half(), queue="team")
    world.settle()
    assert world.why("work") == [Reason.SHARE_TOO_LARGE]
    world.submit("whole", gpus_each=1, queue="team").settle()
    assert world.is_running("whole")
    world.node("b", gpus=1, model="H200").settle()
    assert world.nodes_of("work") == ["b"]
    world.submit("next", request=half(), queue="team").finish("work").finish("whole").settle()
    assert world.nodes_of("next") == ["b"]
    world.submit("x", request=half(), queue="team").submit("y", request=half(), queue="team").settle()
    assert (world.nodes_of("x"), world.nodes_of("y")) == (["b"], [])
    world.node("a", gpus=1, model="H200").settle()
    assert world.nodes_of("y") == ["a"]


def test_a_fraction_goes_to_the_gpus_on_which_it_is_small_enough() -> None:
    world = lab(GPU_MODELS["L40S"].memory_mib // 2).node("b", gpus=1, model="L40S")
    for name in ("one", "two", "three"):
        world.submit(name, request=half(), queue="team")
    world.settle()
    assert [world.nodes_of(name) for name in ("one", "three", "two")] == [["b"], ["b"], []]
    assert world.is_within_capacity()


def test_a_bound_that_changes_holds_for_work_that_waits_and_lets_running_work_be() -> None:
    world = lab().submit("first", request=half(), queue="team")
    world.settle()
    world.queue("lab", max_share_mib=HALF_MIB - 1).submit("second", request=half(), queue="team").settle()
    assert world.is_running("first")
    assert world.why("second") == [Reason.SHARE_TOO_LARGE]
    world.queue("lab", max_share_mib=HALF_MIB).settle()
    assert world.is_running("second")


def test_a_queue_that_moves_takes_over_the_bounds_above_it() -> None:
    world = lab(HALF_MIB - 1).submit("work", request=half(), queue="team")
    world.settle()
    assert not world.is_running("work")
    world.queue("team").settle()
    assert world.is_running("work")


def test_nobody_is_stopped_for_a_share_that_may_not_be_that_large() -> None:
    world = lab(HALF_MIB - 1).submit("low", gpus_each=1, queue="team")
    world.settle()
    world.submit("urgent", request=half(), queue="team", priority=50).settle()
    assert world.is_running("low")
    assert world.why("urgent") == [Reason.SHARE_TOO_LARGE]


def test_why_names_the_bound_and_no_way_around_it() -> None:
    world = lab(16 << 10).queue("ops", namespaces=("default",)).submit("work", request=half(), queue="team")
    world.settle()
    answer = why(world.state, "default/work", world.policy, world.now_s)
    assert "but queue lab allows at most 16 GiB for one share" in answer.answer
    assert "ask for a smaller share; waiting does not help" in str(answer)
    assert answer.change is None or answer.change.kind == "smaller-size"
    assert "ops" not in str(answer)
    world = lab(**{MAX_MEMORY: "16Gi"}).submit("work", request=half(), queue="team")
    world.settle()
    text = why(world.state, "default/work", world.policy, world.now_s).answer
    assert "but no node allows more than 16 GiB for one share" in text


def test_a_submission_with_more_memory_is_refused_with_the_queue_and_the_way_out() -> None:
    queues = {"lab": Queue("lab", max_share_mib=1000), "team": Queue("team", "lab", max_share_mib=2000)}
    check_shares(queues, "default/w", "team", [memory(1000), half(), Request(gpus=1)])
    for request in (memory(1001), half(1001)):
        with pytest.raises(RefusedError, match=r"queue lab allows at most 1000 MiB.*raise spec\.maxShareMemory of lab"):
            check_shares(queues, "default/w", "team", [request])


def test_a_plan_that_gives_a_share_more_than_is_allowed_is_refused() -> None:
    work = Workload("default/work", (Role(memory(1000)),), queue="lab")
    for mib, most, is_right in ((1000, 1000, True), (1000, 999, False), (1000, 0, True)):
        start = Start("default/work", "main-0", "a", (Share("gpu-0", 10, mib),))
        queues = {"lab": Queue("lab", max_share_mib=most)}
        assert isinstance(check_devices(work, start, queues), Misfit) is not is_right
    for label, is_right in (("1000", True), ("999", False)):
        nodes = {"a": Node("a", gpus=(Gpu("gpu-0", "H200", 5000),), labels={MAX_MEMORY: label})}
        pod = Pod("default/work", "main-0", "a", devices=(Share("gpu-0", 200, 1000),))
        misfit = find_misfit(work, [pod], [], nodes, Ledger(), Owners(lambda _: work, {}))
        assert (misfit is None) is is_right


def test_a_partition_is_no_share_of_a_gpu() -> None:
    work = Workload("default/work", (Role(Request(gpus=1, partition="CPX")),), queue="lab")
    device = Gpu("gpu-0.0", "MI300X", 24_000, parent="gpu-0", profile="CPX+NPS1", milli=125)
    nodes = {"a": Node("a", gpus=(device,), labels={MAX_MEMORY: "10"})}
    pod = Pod("default/work", "main-0", "a", devices=(Share("gpu-0.0", 125, 24_000),))
    assert find_misfit(work, [pod], [], nodes, Ledger(), Owners(lambda _: work, {})) is None
    start = Start("default/work", "main-0", "a", pod.devices)
    assert not isinstance(check_devices(work, start, {"lab": Queue("lab", max_share_mib=10)}), Misfit)


@pytest.mark.parametrize(
    ("of_lab", "of_team", "of_node", "most", "given"),
    [
        (0, 0, "", 0, 0),
        (300, 0, "", 0, 300),
        (300, 200, "", 0, 200),
        (200, 300, "", 0, 300),  # the nearest default counts, not the lowest
        (0, 0, "30", 0, 300),
        (400, 0, "30", 0, 400),  # that of the queue comes before that of the node
        (900, 0, "", 0, 500),  # no more than the share without a bound above it
        (900, 0, "", 800, 800),
        (0, 0, "90", 800, 800),
        (0, 0, "much", 800, 0),
        (0, 0, "101", 800, 0),
        (0, 0, "90", 0, 500),
    ],
)
def test_a_share_that_asks_for_no_threads_gets_the_default_within_the_bounds(
    of_lab: int, of_team: int, of_node: str, most: int, given: int
) -> None:
    world = World(nodes=0).node("a", gpus=1, model="H200", labels={DEFAULT_THREADS: of_node} if of_node else {})
    world.queue("lab", default_threads_milli=of_lab, max_threads_milli=most)
    world.queue("team", "lab", default_threads_milli=of_team).submit("work", request=half(), queue="team")
    world.settle()
    assert threads_of(world, "work") == [given]
    work, (pod,) = world.state.workloads["default/work"], world.state.pods["default/work"].values()
    start = Start("default/work", pod.name, "a", pod.devices)
    assert not isinstance(check_devices(work, start, world.state.queue_objects), Misfit)


def test_what_a_workload_asks_for_comes_before_every_default() -> None:
    world = World(nodes=0).node("a", gpus=1, model="H200", labels={DEFAULT_THREADS: "10"})
    world.queue("lab", default_threads_milli=200)
    world.submit("work", request=half(isolation="mps", threads_milli=400), queue="lab").settle()
    assert threads_of(world, "work") == [400]


def test_the_default_of_a_memory_request_is_held_to_its_part_of_the_device() -> None:
    world = World(nodes=0).node("a", gpus=1, model="H200").queue("lab", default_threads_milli=200)
    world.submit("small", request=memory(H200_MIB // 10), queue="lab")
    world.submit("large", request=memory(HALF_MIB), queue="lab").settle()
    assert threads_of(world, "small") == [H200_MIB // 10 * 1000 // H200_MIB]
    assert threads_of(world, "large") == [200]


@pytest.mark.parametrize(
    ("model", "request_"),
    [("MI300X", half()), ("H200", half(isolation="time-slicing")), ("H200", Request(gpus=1))],
)
def test_only_shares_by_mps_have_threads(model: str, request_: Request) -> None:
    world = World(nodes=0).node("a", gpus=1, model=model, labels={DEFAULT_THREADS: "30"})
    world.queue("lab", default_threads_milli=200).submit("work", request=request_, queue="lab").settle()
    assert threads_of(world, "work") == [0]


def test_a_default_that_changes_holds_for_work_that_starts_later() -> None:
    world = World(nodes=0).node("a", gpus=1, model="H200").queue("lab", default_threads_milli=200)
    world.submit("first", request=half(), queue="lab").settle()
    world.queue("lab", default_threads_milli=300).submit("second", request=half(), queue="lab").settle()
    assert threads_of(world, "first") == [200]
    assert threads_of(world, "second") == [300]


def test_a_state_made_of_its_own_events_has_the_same_limits() -> None:
    world = lab(HALF_MIB - 1).submit("work", request=half(), queue="team")
    world.settle()
    again = ClusterState()
    again.patch(world.state.events())
    assert set(again.backlog.by_key) == set(world.state.backlog.by_key)


def test_a_queue_says_them_in_its_manifest() -> None:
    (found,) = parse(queue(maxShareMemory="16Gi", defaultThreads=30)).queues
    assert (found.max_share_mib, found.default_threads_milli) == (16 << 10, 300)
    (found,) = parse(queue(maxShareMemory=16_000)).queues
    assert found.max_share_mib == 16_000


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"maxShareMemory": "much"}, "spec.maxShareMemory", ["not a quantity"]),
        ({"maxShareMemory": 0}, "spec.maxShareMemory", ["less than 1 MiB"]),
        ({"maxShareMemory": "2Ti"}, "spec.maxShareMemory", ["too much"]),
        ({"defaultThreads": 0}, "spec.defaultThreads", ["1"]),
        ({"defaultThreads": 101}, "spec.defaultThreads", ["100"]),
    ],
)
def test_a_queue_with_other_values_is_refused(spec: dict[str, Any], field: str, words: list[str]) -> None:
    check_refusal(queue(**spec), field, words)


LIMITS = st.sampled_from([0, 10_000, HALF_MIB - 1, HALF_MIB, H200_MIB])


@given(
    LIMITS, LIMITS, st.sampled_from(["", "12Gi", "64Gi", "x"]), st.sampled_from([0, 100, 600]),
    st.sampled_from([0, 300, 900]),
    st.lists(
        st.tuples(st.sampled_from([100, 500, 900, 1000]), st.sampled_from([0, 0, 9000, 60_000]), st.booleans()),
        min_size=1, max_size=8,
    ),
)  # fmt: skip
def test_whatever_is_asked_for_every_share_keeps_to_every_bound(
    of_lab: int, of_team: int, label: str, default: int, most: int, asked: list[tuple[int, int, bool]]
) -> None:
    labels = {MAX_MEMORY: label} if label else {}
    world = World(nodes=0).node("a", gpus=2, model="H200", labels=labels).node("b", gpus=1, model="MI300X")
    world.queue("lab", max_share_mib=of_lab, max_threads_milli=most)
    world.queue("team", "lab", max_share_mib=of_team, default_threads_milli=default)
    for number, (milli, mib, is_below) in enumerate(asked):
        request = Request(gpus=1, gpu_milli=milli, gpu_mib=mib)
        world.submit(f"w{number}", request=request, queue="team" if is_below else "default")
    world.settle()
    assert world.is_within_capacity()
    bounds = [mib for mib in (of_lab, of_team) if mib]
    for name, pods in world.state.pods.items():
        workload = world.state.workloads[name]
        for pod in pods.values():
            for each in pod.devices:
                if workload.roles[0].request.is_exclusive:
                    continue
                assert each.mib <= (most_share_mib(labels) if pod.node == "a" else ANY_MIB)
                assert workload.queue == "default" or each.mib <= min(bounds, default=ANY_MIB)
                assert each.threads_milli <= max(each.milli, most)
