"""One object that is beyond all measure, or that breaks whoever reads it, stops nobody else."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, read_grant
from kaiwo.clusters.kubernetes.cache.nomination_annotations import NOMINATION_ANNOTATION, NominationAnnotations
from kaiwo.clusters.kubernetes.cache.planned_start_annotations import read_planned_start, write_planned_start
from kaiwo.clusters.kubernetes.cache.published_state import UnitState
from kaiwo.clusters.kubernetes.client import Change, Resource
from kaiwo.clusters.kubernetes.client.connection import STRATEGIC
from kaiwo.clusters.kubernetes.client.informer import KindHandler, as_is
from kaiwo.clusters.kubernetes.decode.node_decoder import DEVICES_ANNOTATION, read_node
from kaiwo.clusters.kubernetes.decode.pod_decoder import PodDecoder
from kaiwo.clusters.kubernetes.decode.quantities import (
    MAX_BYTES,
    MAX_CPU_MILLI,
    MAX_GPUS,
    read_offered,
    read_requested,
)
from kaiwo.clusters.kubernetes.decode.wire_objects import Node, Pod
from kaiwo.clusters.kubernetes.watch.cluster_watch import PodHandler
from kaiwo.model.events import Event
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedStart
from kaiwo.snapshot.node_table import EditableNodeTable
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod, wire_node, wire_pod
from tests.clusters.kubernetes.kubectl_cluster import Kubectl
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound
from tests.controlplane.plane import Plane
from tests.waiting import run

HUGE = "9223372036854775807"
TOO_MANY = 10**30


@pytest.mark.parametrize("value", [HUGE, "10P", "1e30", "9E"])
def test_what_a_node_offers_is_counted_up_to_what_clusters_have(value: str) -> None:
    assert read_offered("cpu", value) == read_requested("cpu", value) == MAX_CPU_MILLI
    assert read_offered("amd.com/gpu", value) == MAX_GPUS
    assert read_offered("memory", value) <= MAX_BYTES


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods", "example.com/x", "amd.com/gpu"])
def test_every_amount_of_a_node_can_be_counted(resource: str) -> None:
    wire = wire_node("n")
    assert wire.status.allocatable is not None
    wire.status.allocatable[resource] = "1e30"
    node = read_node(wire)
    EditableNodeTable({"n": node}).write_node(node, (), 0)


def test_a_pod_of_many_containers_that_each_ask_for_all_there_is() -> None:
    container = {"resources": {"requests": {"ephemeral-storage": HUGE, "cpu": HUGE, "memory": HUGE}}}
    request = cached_pod("p", containers=[container | {"name": f"c{n}"} for n in range(600)]).spec.request
    assert (request.cpu_milli, dict(request.extended)) == (MAX_CPU_MILLI, {"ephemeral-storage": MAX_BYTES})


def test_numbers_in_annotations_and_labels_are_measured_too() -> None:
    listed = msgspec.json.encode([{"id": "gpu-0", "model": "MI300X", "memory_mib": TOO_MANY}]).decode()
    node = read_node(wire_node("n", annotations={DEVICES_ANNOTATION: listed}))
    assert len(node.gpus) == 8  # the list is no list of devices: the count is what is left
    node = read_node(wire_node("n", resource="nvidia.com/gpu", labels={"nvidia.com/gpu.memory": str(TOO_MANY)}))
    EditableNodeTable({"n": node}).write_node(node, (), 0)
    assert read_node(wire_node("n", annotations={DEVICES_ANNOTATION: "[]"})).gpus == ()
    grant = msgspec.json.encode([{"gpu": "gpu-0", "milli": TOO_MANY, "mib": 1}]).decode()
    assert read_grant({GRANT_ANNOTATION: grant}) is None
    assert read_planned_start(write_planned_start(PlannedStart("w", 5, ())), "w") is not None
    assert read_planned_start(write_planned_start(PlannedStart("w", 1 << 60, ())), "w") is None
    for cpu_milli, is_kept in ((1000, True), (1 << 62, False)):
        note = msgspec.json.encode(Nomination("w", "main-0", "n", cpu_milli=cpu_milli)).decode()
        kept = NominationAnnotations().of("w", "main-0", cached_pod("p", annotations={NOMINATION_ANNOTATION: note}))
        assert (kept is not None) is is_kept


class Told:
    """Who hears of what was left out."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def __call__(self, event: str, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})


def test_an_object_that_breaks_its_reader_is_left_out_and_named() -> None:
    there: dict[str, Node] = {}

    def put(node: Node) -> None:
        if node.spec.unschedulable:
            raise OverflowError("too large")
        there[node.metadata.name] = node

    resource: Resource[Node] = Resource("/api/v1/nodes", Node)
    resource.report = told = Told()
    kind = KindHandler(resource, as_is, put, lambda node: there.pop(node.metadata.name, None) and None)
    kind.on_list_start()
    kind.on_page([wire_node("a"), wire_node("b", unschedulable=True), wire_node("c")])
    kind.on_list_end("1")
    assert set(there) == {"a", "c"}
    for _ in range(3):
        kind.on_changes(
            [Change(wire_node("c", unschedulable=True)), Change(wire_node("d")), Change(wire_node("a"), True)]
        )
    assert set(there) == {"c", "d"}  # what was known of c stays known
    assert resource.unreadable == 4
    assert [(line["object"], line["error"]) for line in told.lines] == [
        ("b", "OverflowError: too large"),
        ("c", "OverflowError: too large"),
    ]  # each once, however often it comes


def test_a_pod_that_breaks_its_reader_holds_what_it_held(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, decoder = cache_with_nodes(), PodDecoder()
    resource: Resource[Pod] = Resource("/api/v1/pods", Pod)
    resource.report = told = Told()
    pods = PodHandler(resource, cache, decoder)
    pods.on_page([wire_pod("a", node="node-1"), wire_pod("b", node="node-1")])
    pods.on_list_end("1000000")
    before = decoder.decode

    def spoilt(pod: Pod) -> Any:
        if pod.metadata.name == "a":
            raise OverflowError("too large")
        return before(pod)

    monkeypatch.setattr(decoder, "decode", spoilt)
    pods.on_changes([Change(wire_pod("a", node="node-1")), Change(wire_pod("b", node="node-1"), True)])
    assert set(cache.pods) == {("default", "a")}
    pods.on_list_start()
    pods.on_page([wire_pod("a", node="node-1")])
    pods.on_list_end("2000000")
    assert set(cache.pods) == {("default", "a")}
    assert resource.unreadable == 2
    assert [line["object"] for line in told.lines] == ["default/a"]


def test_a_workload_that_cannot_be_told_keeps_nobody_from_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_with_nodes()
    cache.report = told = Told()
    publish = cache.published.publish

    def broken(state: UnitState, now_s: int) -> list[Event]:
        if state.name == "default/b":
            raise ValueError("no such thing")
        return publish(state, now_s)

    monkeypatch.setattr(cache.published, "publish", broken)
    for name in "abc":
        cache.upsert_pod(cached_pod(name))
    cache.flush()
    assert set(cache.published.workloads) == {"default/a", "default/c"}
    assert cache.left_out == 1
    assert [line["workload"] for line in told.lines] == ["default/b"]


def test_a_line_that_cannot_be_read_is_named_in_the_log() -> None:
    resource: Resource[Node] = Resource("/api/v1/nodes", Node)
    resource.report = told = Told()
    spoilt = {"metadata": {"name": "n"}, "spec": {"unschedulable": "perhaps"}}
    page = {"metadata": {"resourceVersion": "1"}, "items": [spoilt, {"metadata": {"name": "m"}}]}
    items = resource.read_page(msgspec.json.encode(page)).items
    assert [item.metadata.name for item in items] == ["m"]
    assert resource.read_line(msgspec.json.encode({"type": "MODIFIED", "object": spoilt})) is None
    assert [line["object"] for line in told.lines] == ["n", "n"]
    assert resource.unreadable == 2


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods", "example.com/x"])
def test_a_node_beyond_all_measure_stops_nobody(plane: Plane, tmp_path: Path, resource: str) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path / "first") as kubectl:
            await kubectl.node("node-1")
            await kubectl.pod("before")
            await until_bound(kubectl, "before")
            await _offer(kubectl, "strange", resource)
            await kubectl.pod("after", nodeSelector={"kubernetes.io/hostname": "node-1"})
            await until_bound(kubectl, "after")
            await kubectl.pod("there", nodeSelector={"kubernetes.io/hostname": "strange"})
            await until_bound(kubectl, "there")

    run(test())


async def _offer(kubectl: Kubectl, name: str, resource: str) -> None:
    await kubectl.node(name)
    amounts = {resource: HUGE}
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    await kubectl.patch(f"/api/v1/nodes/{name}/status", status, STRATEGIC)
