"""Kubernetes' objects in our words. Nothing here needs a server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, least_used, read_grant, write_grant
from kaiwo.clusters.kubernetes.cache.workload_unit import assign_slots
from kaiwo.clusters.kubernetes.decode.node_decoder import find_model, read_node
from kaiwo.clusters.kubernetes.decode.pod_request import NODE_NAME, PodRequest
from kaiwo.clusters.kubernetes.decode.workload_annotations import read_workload_settings
from kaiwo.clusters.kubernetes.gangs.metadata import Reference
from kaiwo.clusters.ledger import NodeUsage
from kaiwo.model.affinity import NodeRule
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.node import Taint
from kaiwo.model.workload import Pod
from tests.clusters.kubernetes.api_objects import cached_pod, wire_node


def _container(requests: dict[str, str], limits: dict[str, str] | None = None, **more: object) -> dict[str, object]:
    return {"name": "c", "resources": {"requests": requests, "limits": limits or {}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu_milli", "memory_mib"),
    [
        ({"containers": [_container({"cpu": "500m"}), _container({"cpu": "1"})]}, 1500, 0),
        ({"containers": [_container({}, {"cpu": "2", "memory": "1Gi"})]}, 2000, 1024),
        ({"containers": [_container({"memory": "1"})]}, 0, 1),
        ({"containers": [_container({"cpu": "1"})], "initContainers": [_container({"cpu": "3"})]}, 3000, 0),
        ({"containers": [_container({"cpu": "1"})], "overhead": {"cpu": "250m", "memory": "64Mi"}}, 1250, 64),
        (
            {
                "containers": [_container({"cpu": "1"})],
                "initContainers": [_container({"cpu": "2"}, restartPolicy="Always"), _container({"cpu": "500m"})],
            },
            3000,
            0,
        ),
        ({"containers": [_container({"cpu": "1"})], "resources": {"requests": {"cpu": "7"}}}, 7000, 0),
        ({"containers": [{"name": "c"}]}, 0, 0),
    ],
)
def test_requests_add_up_as_in_kubernetes(spec: dict[str, object], cpu_milli: int, memory_mib: int) -> None:
    request = cached_pod("a", **spec).spec.request
    assert (request.cpu_milli, request.memory_mib) == (cpu_milli, memory_mib)


def test_disk_space_and_huge_pages_are_extended_resources() -> None:
    amounts = {"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "example.com/port": "2"}
    request = cached_pod("a", containers=[_container(amounts)]).spec.request
    assert dict(request.extended) == {"ephemeral-storage": 1 << 30, "hugepages-2Mi": 4 << 20, "example.com/port": 2}


def test_equal_wishes_are_one_value_and_different_ones_are_not() -> None:
    first, second = cached_pod("a", nodeSelector={"zone": "a"}), cached_pod("b", nodeSelector={"zone": "a"})
    assert first.spec is second.spec
    assert cached_pod("c", nodeSelector={"zone": "b"}).spec is not first.spec
    half = {"kaiwo.ai/gpu-fraction": "0.5"}
    assert (
        cached_pod("d", gpus=0, annotations=half).spec is cached_pod("e", gpus=0, annotations={**half, "x": "y"}).spec
    )
    assert cached_pod("f", gpus=0).spec is not cached_pod("g", gpus=0, annotations=half).spec


@pytest.mark.parametrize("note", [{"kaiwo.ai/gpu-fraction": "0.5"}, {"kaiwo.ai/gpu-memory": "4000"}])
def test_a_share_beside_the_vendors_resource_is_whole_for_the_kubelet_counts_it_so(note: dict[str, str]) -> None:
    ask = cached_pod("a", annotations=note).spec
    assert (ask.refusal, ask.request) == ("", cached_pod("b").spec.request)
    two = cached_pod("c", annotations={**note, "kaiwo.ai/gpu-devices": "2"}).spec
    assert "a share on each of 2 devices and for amd.com/gpu: 1, which the kubelet hands out whole" in two.refusal


@pytest.mark.parametrize("prefix", ["kaiwo.ai", "kaiwo.silogen.ai"])
def test_whole_gpus_stay_exclusive_where_the_kubelet_hands_them_out_whatever_a_note_says(prefix: str) -> None:
    ask = cached_pod("a", gpus=2, annotations={f"{prefix}/gpu-sharing": "true"}).spec
    assert (ask.refusal, ask.request) == ("", cached_pod("b", gpus=2).spec.request)
    strict = {f"{prefix}/gpu-sharing": "true", "kaiwo.ai/gpu-isolation-grade": "mps"}
    assert "gpu-sharing alone is time-slicing" in cached_pod("c", annotations=strict).spec.refusal


@pytest.mark.parametrize("prefix", ["kaiwo.ai", "kaiwo.silogen.ai"])
def test_without_the_vendors_resource_they_are_shared_by_turns_where_an_agent_serves_shares(prefix: str) -> None:
    notes = {f"{prefix}/gpu-sharing": "true", f"{prefix}/gpu-devices": "2"}
    ask = cached_pod("a", annotations=notes, containers=[_container({"kaiwo.ai/gpu-share": "2"})]).spec
    request = ask.request
    assert ask.refusal == ""
    assert (request.gpus, request.gpu_milli, request.isolation) == (2, 500, "time-slicing")
    assert NodeRule("kaiwo.ai/gpu-sharing", "In", ("true",)) in request.node_rules
    assert (request.extended, ask.gpus_by_resource) == ((("kaiwo.ai/gpu-share", 2),), 0)


def test_a_pod_goes_to_the_vendor_it_names() -> None:
    amd, nvidia = read_node(wire_node("a")), read_node(wire_node("b", resource="nvidia.com/gpu"))
    (rule,) = cached_pod("p").spec.request.node_rules
    assert rule.operator == "Exists"
    assert rule.key in amd.labels
    assert rule.key not in nvidia.labels


@pytest.mark.parametrize(("one", "other"), [("amd.com/gpu", "nvidia.com/gpu"), ("nvidia.com/gpu", "amd.com/gpu")])
def test_none_of_a_vendors_gpus_is_no_request_for_them(one: str, other: str) -> None:
    def ask(**amounts: str) -> PodRequest:
        return cached_pod("p", containers=[{"name": "c", "resources": {"limits": amounts, "requests": amounts}}]).spec

    assert ask(**{one: "1", other: "0"}) == ask(**{one: "1"})
    assert "keep one" in ask(**{one: "1", other: "1"}).refusal


def test_selectors_and_one_term_of_affinity_become_rules() -> None:
    expression = {"key": "gen", "operator": "Gt", "values": ["3"]}
    field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression], "matchFields": [field]}]
            }
        }
    }
    ask = cached_pod("a", gpus=0, nodeSelector={"b": "2", "a": "1"}, affinity=affinity).spec
    assert ask.refusal == ""
    assert ask.request.node_rules == (
        NodeRule("a", "In", ("1",)),
        NodeRule("b", "In", ("2",)),
        NodeRule("gen", "Gt", ("3",)),
        NodeRule(NODE_NAME, "In", ("node-1",)),
    )
    assert read_node(wire_node("node-1")).labels[NODE_NAME] == "node-1"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"resourceClaims": [{"name": "x"}]}, "device claims"),
        ({"annotations": {"kaiwo.ai/gpu-fraction": "2"}}, "gpu-fraction"),
        ({"annotations": {"kaiwo.ai/gpu-fraction": "0.5", "kaiwo.ai/gpu-sharing": "false"}}, "gpu-sharing"),
        ({"containers": [_container({"amd.com/gpu": "1", "nvidia.com/gpu": "1"})]}, "one vendor"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_never_dropped(spec: dict[str, object], words: str) -> None:
    assert words in cached_pod("a", **spec).spec.refusal


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
    ],
)
def test_what_is_only_preferred_is_no_reason_to_refuse(spec: dict[str, object]) -> None:
    ask = cached_pod("a", **spec).spec
    assert (ask.refusal, ask.affinity) == ("", None)


def test_only_the_annotations_that_matter_are_kept_of_a_long_list() -> None:
    notes = {f"example.com/{number}": "x" * 50 for number in range(10)} | {"kaiwo.ai/queue": "lab"}
    assert cached_pod("a", annotations=notes).annotations == {"kaiwo.ai/queue": "lab"}


def test_long_annotations_do_not_fill_the_memory() -> None:
    notes = {
        "kaiwo.ai/queue": "x" * 100_000,
        "kaiwo.ai/unknown": "x" * 100_000,
        "kaiwo.ai/granted-devices": "x" * 2_000,
    }
    pod = cached_pod("a", annotations=notes)
    assert len(pod.annotations_text) < 4_000
    with pytest.raises(ConfigError, match=r"kaiwo.ai/queue has more than 1,000 characters"):
        read_workload_settings("Pod 'a'", [(pod.annotations, {})], 0, False)


def test_owners_are_shared() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    first, second = (cached_pod(name, ownerReferences=[owner]) for name in ("a", "b"))
    assert first.owners is second.owners
    assert first.owners == (Reference("Job", "j", "1", "batch/v1", True),)


@pytest.mark.parametrize(
    ("label", "model"),
    [
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("NVIDIA-A100-SXM4-80GB", "A100"),
        ("mi355x", "MI355X"),
        ("Something-Else", "Something-Else"),
    ],
)
def test_a_model_is_found_in_what_a_label_says(label: str, model: str) -> None:
    assert find_model(label) == model


def test_a_node_is_read_with_its_state() -> None:
    taints = [{"key": "gpu", "effect": "NoExecute"}]
    node = read_node(wire_node("a", ready="Unknown", unschedulable=True, taints=taints))
    assert (node.ready, node.cordoned, node.reason) == (False, True, "kubelet stopped posting")
    assert node.taints == (Taint("gpu", "", "NoExecute"),)
    assert (node.cpu_milli, node.memory_mib, node.pods) == (64_000, 512 * 1024, 110)


def test_a_node_that_says_nothing_of_pods_takes_none() -> None:
    node = wire_node("n")
    assert node.status.allocatable is not None
    assert read_node(node).pods == 110
    del node.status.allocatable["pods"]
    assert read_node(node).pods == 0


def test_the_agents_list_of_devices_counts_before_the_number() -> None:
    listed = '[{"id": "0000:05:00.0", "model": "MI300X", "memory_mib": 24576, "healthy": false, "reason": "ECC"}]'
    (gpu,) = read_node(wire_node("a", annotations={"kaiwo.ai/devices": listed})).gpus
    assert (gpu.id, gpu.memory_mib, gpu.healthy, gpu.reason) == ("0000:05:00.0", 24576, False, "ECC")
    assert len(read_node(wire_node("a", annotations={"kaiwo.ai/devices": "spoilt"})).gpus) == 8


@pytest.mark.parametrize(("label", "mib"), [("amd.com/gpu.vram", 262144), ("none", 192 * 1024)])
def test_the_size_of_a_gpu_comes_from_its_label_or_its_model(label: str, mib: int) -> None:
    node = read_node(wire_node("a", labels={"amd.com/gpu.product-name": "MI300X", label: "256G"}))
    assert node.gpus[0].memory_mib == mib


def test_a_grant_is_read_as_it_was_written() -> None:
    shares = (Share("0000:05:00.0", 500, 1000), Share("gpu-1", 1000, 0))
    assert read_grant({GRANT_ANNOTATION: write_grant(shares)}) == shares
    assert read_grant({}) is None
    assert read_grant({GRANT_ANNOTATION: "spoilt"}) is None


def test_a_pod_that_somebody_else_placed_is_dealt_the_least_used_devices() -> None:
    gpus = [Gpu(f"gpu-{index}", "MI300X", 10) for index in range(4)]
    use = NodeUsage()
    use.add(Pod("w", "main-0", "n", devices=(Share("gpu-0", 1000, 10), Share("gpu-2", 500, 5))))
    assert [share.gpu for share in least_used(3, gpus, use)] == ["gpu-1", "gpu-3", "gpu-2"]
    assert len(least_used(9, gpus, use)) == 4


UIDS = st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, max_size=12)


@given(UIDS, st.data())
def test_places_have_no_hole_and_who_is_bound_moves_only_when_it_must(uids: list[str], data: st.DataObject) -> None:
    fixed = [uid for uid in uids if data.draw(st.booleans())]
    others = [uid for uid in uids if uid not in fixed]
    had = {uid: data.draw(st.integers(0, 15)) for uid in uids if data.draw(st.booleans())}
    places = assign_slots(fixed, others, had)
    assert sorted(places.values()) == list(range(len(uids)))
    firsts = {had[uid]: uid for uid in reversed(fixed) if uid in had}
    for place, uid in firsts.items():
        if place < len(uids):
            assert places[uid] == place
