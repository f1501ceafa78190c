"""What is written as a manifest reads as the same object again; what cannot be written is refused, never changed."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.manifests import ManifestDefaults, parse
from kaiwo.manifests.write_manifest import queue_document, reservation_document, workload_document
from kaiwo.model.affinity import NodeRule
from kaiwo.model.errors import RefusedError
from kaiwo.model.queue import UNBOUNDED_DEFAULT_QUEUE
from kaiwo.model.workload_record import Program

names = st.sampled_from(["lab", "vision", "a.b", "x-1"])
forms = st.fixed_dictionaries(
    {"name": st.just("train")},
    optional={
        "namespace": names.filter(lambda name: "." not in name),
        "queue": names,
        "user": st.sampled_from(["ada", "bob"]),
        "type": st.sampled_from(["training", "inference"]),
        "priority": st.integers(-9, 99),
        "cpu": st.sampled_from(["4", "500m", "0"]),
        "memory": st.sampled_from(["16Gi", "100Mi"]),
        "pods": st.integers(1, 9),
        "time": st.sampled_from(["90s", "2h30m"]),
        "estimate": st.just("1h"),
        "bandwidth": st.sampled_from(["200Gbps", "25GB/s", "1.5GB/s"]),
        "reservation": names,
        "expires": st.just("3h"),
        "preemptible": st.booleans(),
        "hold": st.booleans(),
        "labels": st.dictionaries(st.sampled_from(["team", "tier"]), st.sampled_from(["a", "7"]), max_size=2),
        "nodeSelector": st.dictionaries(st.sampled_from(["zone", "rack"]), st.sampled_from(["1", "west"]), max_size=2),
        "tolerations": st.just(
            [{"key": "gpu", "operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]
        ),
        "command": st.just(["sh", "-c", "echo 'a: b' && true"]),
        "env": st.just({"PORT": "8080", "EMPTY": ""}),
        "workdir": st.just("/tmp/a b"),
        "retries": st.integers(0, 3),
        "after": st.just(["prepare", "team/other"]),
        "requiredLevel": st.just("leaf"),
    },
)
parts = st.sampled_from(["0.01", "0.333", "0.5"])
sizes = st.one_of(
    st.fixed_dictionaries({"gpus": st.integers(0, 8)}, optional={"gpuModels": st.just(["MI300X", "H200"])}),
    st.builds(lambda part, devices: {"gpuFraction": part, "gpuDevices": devices}, parts, st.integers(1, 3)),
    st.fixed_dictionaries({"gpuMemory": st.integers(1, 90_000)}, optional={"gpuFraction": st.just("0.25")}),
    st.just({"gpuPartition": "CPX+NPS4", "gpus": 3}),
    st.just({"gpuFraction": "0.5", "gpuThreads": 30, "gpuShareWith": "queue,user"}),
    st.just({"gpus": 2, "gpuSharing": True}),
    st.just({"gpus": 1, "subGroups": [{"name": "a", "pods": 2, "gpus": 2}, {"name": "b", "pods": 1, "minPods": 1}]}),
    st.just(
        {
            "minSubGroups": 1,
            "subGroups": [
                {"name": "one", "minSubGroups": 1},
                {"name": "x", "parent": "one", "pods": 3, "minPods": 2, "leader": True},
                {"name": "y", "pods": 4, "memory": "2Gi", "requiredLevel": "leaf"},
            ],
        }
    ),
)  # fmt: skip


@given(forms, sizes)
def test_a_written_workload_reads_as_the_same(form: dict[str, Any], size: dict[str, Any]) -> None:
    if "subGroups" in size:
        form = {name: value for name, value in form.items() if name != "pods"}
    defaults = ManifestDefaults(submitted_s=1_700_000_000)
    ((workload, program),) = parse({**form, **size}, defaults).submissions
    document = workload_document(workload, program)
    text = yaml.safe_dump(document, sort_keys=False)
    assert parse(yaml.safe_load(text), defaults).submissions == ((workload, program),)


amounts = st.fixed_dictionaries(
    {}, optional={"quota": st.sampled_from([0, 4, "0.5", "12.125"]), "limit": st.sampled_from([64, "100.5"])}
)
queues = st.fixed_dictionaries(
    {},
    optional={
        "displayName": st.sampled_from(["The lab", "Größe: 5"]),
        "parentQueue": names,
        "priority": st.integers(-9, 200),
        "maxPriority": st.integers(-9, 200),
        "resources": st.fixed_dictionaries(
            {},
            optional={
                "gpu": st.builds(
                    lambda base, weight, models: {**base, "overQuotaWeight": weight, "models": models},
                    amounts,
                    st.integers(0, 5),
                    st.sampled_from([{}, {"MI300X": {"quota": 2}, "H200": {"limit": "0.5"}}]),
                ),
                "cpu": st.just({"quota": "500m", "limit": 64}),
                "memory": st.just({"limit": "1Ti"}),
            },
        ),
        "fairness": st.just({"policy": "FIFO", "minRuntime": "10m", "evictionsPerHour": 0}),
        "namespaces": st.just(["b", "a"]),
        "users": st.just(["ada"]),
        "shareWith": st.just(["queue", "user"]),
        "maxThreads": st.integers(1, 100),
        "maxShareMemory": st.just("16Gi"),
    },
)


@given(queues)
def test_a_written_queue_reads_as_the_same(spec: dict[str, Any]) -> None:
    document = {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue", "metadata": {"name": "q"}, "spec": spec}
    (queue,) = parse(document).queues
    written = yaml.safe_load(yaml.safe_dump(queue_document(queue), sort_keys=False))
    assert parse(written).queues == (queue,)


@pytest.mark.parametrize(
    "spec",
    [
        {"gpus": 4},
        {"gpus": 4, "gpuModels": ["MI300X"], "nodeSelector": {"zone": "1"}, "owner": {"queue": "lab"}},
        {"nodes": ["node-1"], "start": "2026-01-31T18:00:00Z", "end": "2026-02-01T18:00:00Z", "atEnd": "evict"},
        {"devices": [{"node": "n", "gpu": "gpu-0"}], "owner": {"workload": "default/train"}},
    ],
)
def test_a_written_reservation_reads_as_the_same(spec: dict[str, Any]) -> None:
    document = {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoReservation", "metadata": {"name": "r"}, "spec": spec}
    (reservation,) = parse(document).reservations
    assert parse(reservation_document(reservation)).reservations == (reservation,)


def test_what_the_short_form_cannot_say_is_refused() -> None:
    ((workload, program),) = parse({"name": "train"}).submissions
    rule = NodeRule("zone", "NotIn", ("1",))
    role = replace(workload.roles[0], request=replace(workload.roles[0].request, node_rules=(rule,)))
    with pytest.raises(RefusedError, match="does not express roles; keep the manifest"):
        workload_document(replace(workload, roles=(role,)), program)


def test_secrets_are_left_out() -> None:
    ((workload, _),) = parse({"name": "train", "command": ["true"]}).submissions
    document = workload_document(workload, Program(command=("true",), secret_env={"KEY": "sealed-value"}))
    assert "sealed-value" not in str(document)


def test_a_queue_that_nobody_defined_has_no_manifest() -> None:
    with pytest.raises(RefusedError, match="was defined by nobody"):
        queue_document(UNBOUNDED_DEFAULT_QUEUE)
