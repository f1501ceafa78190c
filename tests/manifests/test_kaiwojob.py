"""Upstream's KaiwoJob, as its users have it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.decide import decide
from kaiwo.manifests import describe_workload
from kaiwo.manifests.kinds.kaiwojob import CPU_MILLI_PER_GPU, GPUS_PER_NODE, MAX_TOTAL_GPUS, split_replicas
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.gpus.gpu_models import VENDOR_MODELS
from tests.manifests.texts import check_refusal, kaiwojob, one, pod, request_of, warnings_of
from tests.worlds import World


def with_template(**spec: Any) -> dict[str, Any]:
    container = {"name": "a", "image": "example/a", "resources": spec.pop("own", {})}
    job = {"spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}, **spec.pop("job", {})}}
    return kaiwojob(job={"apiVersion": "batch/v1", "kind": "Job", **job}, **spec)


@pytest.mark.parametrize(
    ("spec", "wants"),
    [
        ({}, "nothing"),
        ({"gpus": 4}, "4 GPUs"),
        ({"gpus": 4, "gpusPerReplica": 2}, "2 GPUs"),  # without Ray: one pod, and this counts first
        ({"gpus": 4, "replicas": 3}, "4 GPUs"),
        ({"ray": True, "gpus": 16}, "2 pods x 8 GPUs"),
        ({"ray": True, "gpus": 14}, "2 pods x 7 GPUs"),
        ({"ray": True, "gpus": 4}, "4 GPUs"),
        ({"ray": True, "gpus": 9}, "5 GPUs + 4 GPUs"),
        ({"ray": True, "gpus": 17}, "2 pods x 6 GPUs + 5 GPUs"),
        ({"ray": True, "replicas": 3, "gpusPerReplica": 4}, "3 pods x 4 GPUs"),
        ({"ray": True, "replicas": 3, "gpusPerReplica": 4, "gpus": 99}, "3 pods x 4 GPUs"),
        ({"ray": True, "replicas": 3, "gpus": 16}, "2 pods x 8 GPUs"),
        ({"gpuResources": {"count": 3}}, "3 GPUs"),
        ({"ray": True, "replicas": 2, "gpuResources": {"count": 8, "vendor": "nvidia"}}, "2 pods x 8 GPUs"),
        ({"gpuResources": {"totalVram": "96Gi", "partitioned": True}}, "96 GiB of a GPU"),
        ({"gpuResources": {"totalVram": "512Gi"}}, "2 x 256 GiB of a GPU"),
    ],
)
def test_how_many_pods_and_gpus(spec: dict[str, Any], wants: str) -> None:
    assert describe_workload(one(kaiwojob(**spec))[0]) == wants


def test_gpus_without_resources_bring_cpu_and_memory() -> None:
    request = request_of(kaiwojob(gpus=2))
    assert (request.cpu_milli, request.memory_mib) == (8000, 65_536)
    request = request_of(kaiwojob(gpus=2, resources={"requests": {"cpu": "1"}}))
    assert (request.cpu_milli, request.memory_mib) == (1000, 0)


def test_the_vendor_is_amd_unless_said_otherwise() -> None:
    assert request_of(kaiwojob(gpus=1)).gpu_models == VENDOR_MODELS["amd"]
    assert request_of(kaiwojob(gpus=1, gpuVendor="nvidia")).gpu_models == VENDOR_MODELS["nvidia"]
    assert request_of(kaiwojob(gpus=1, gpuModels=["H100"])).gpu_models == ("H100",)


def test_the_fields_around_the_work() -> None:
    spec = {
        "user": "ada@example.com",
        "clusterQueue": "vision",
        "priorityClass": "high-priority",
        "duration": "1h30m0s",
        "image": "example/a",
        "entrypoint": "python main.py\n",
        "env": [{"name": "A", "value": "b"}],
        "podTemplateSpecLabels": {"x": "y"},
    }
    workload, program = one(kaiwojob(**spec))
    assert (workload.user, workload.queue, workload.priority) == ("ada@example.com", "vision", 1000)
    assert (workload.time_limit_s, workload.labels) == (5400, {"x": "y"})
    assert (program.image, program.env, program.command) == ("example/a", {"A": "b"}, ())
    assert one(kaiwojob(queue="other"))[0].queue == "other"


def test_an_entrypoint_runs_only_where_somebody_says_so() -> None:
    document = kaiwojob(entrypoint="sleep 1")
    document["metadata"]["annotations"] = {"kaiwo.ai/run-locally": "true"}
    assert one(document)[1].command == ("/bin/sh", "-c", "sleep 1")


def test_resources_are_defaults_for_the_template() -> None:
    spec = {"requests": {"memory": "100Mi", "cpu": "100m"}, "limits": {"memory": "150Mi"}}
    request = request_of(with_template(resources=spec, own={"requests": {"memory": "125Mi"}}))
    assert (request.cpu_milli, request.memory_mib) == (100, 125)
    request = request_of(
        with_template(resources={"requests": {"memory": "100Mi"}}, own={"limits": {"memory": "125Mi"}})
    )
    assert request.memory_mib == 100


def test_the_template_says_how_the_pod_looks() -> None:
    document = with_template(job={"parallelism": 3, "backoffLimit": 2}, gpus=2, image="example/other")
    workload, program = one(document)
    assert describe_workload(workload) == "3 pods x 2 GPUs"
    assert (program.image, program.retries) == ("example/a", 2)


def test_the_jobs_own_fields_decide_about_gpus() -> None:
    document = with_template(own={"limits": {"amd.com/gpu": 4}}, gpus=2)
    assert request_of(document).gpus == 2
    assert "spec.gpus counts" in warnings_of(document)


def test_without_gpu_fields_the_containers_own_gpus_count() -> None:
    request = request_of(with_template(own={"limits": {"nvidia.com/gpu": 4}}))
    assert (request.gpus, request.gpu_models) == (4, VENDOR_MODELS["nvidia"])


def test_a_fraction_by_annotation() -> None:
    document = kaiwojob(gpus=1)
    document["metadata"]["annotations"] = {"kaiwo.silogen.ai/gpu-fraction": "0.5"}
    assert describe_workload(one(document)[0]) == "0.5 GPU"


def test_topology_labels_are_levels_and_annotations_count_before_them() -> None:
    document = kaiwojob(gpus=16, preferredTopologyLabel="kaiwo/topology-rack", requiredTopologyLabel="block")
    workload = one(document)[0]
    assert (workload.required_level, workload.preferred_level) == ("block", "kaiwo/topology-rack")
    document["metadata"]["annotations"] = {"kaiwo.ai/required-level": "spine"}
    workload = one(document)[0]
    assert (workload.required_level, workload.preferred_level) == ("spine", "kaiwo/topology-rack")


def test_what_is_not_used_is_said() -> None:
    said = warnings_of(
        kaiwojob(
            ray=True,
            gpus=16,
            storage={"storageEnabled": True},
            replicas=2,
        )
    )
    for part in ("spec.storage is not mounted", "spec.ray"):
        assert part in said
    assert "without `ray: true`" in warnings_of(kaiwojob(replicas=2))


@pytest.mark.parametrize(
    ("spec", "field", "parts"),
    [
        ({"gpuz": 3}, "spec.gpuz", ["not a known field", "did you mean gpus?"]),
        ({"monitoring": {}}, "spec.monitoring", ["not a known field", "remove it"]),
        ({"gpus": -1}, "spec.gpus", ["0 to"]),
        ({"gpus": "4"}, "spec.gpus", ["whole number"]),
        ({"gpus": 500}, "spec.gpus", ["500 GPUs", "more pods"]),
        ({"replicas": 0}, "spec.replicas", ["no pods"]),
        ({"gpuVendor": "intel"}, "spec.gpuVendor", ["amd or nvidia"]),
        ({"gpuModels": ["H100"], "gpuVendor": "amd", "gpus": 1}, "spec.gpuModels", ["not made by amd"]),
        ({"gpuModels": "H100"}, "spec.gpuModels", ["a list"]),
        ({"user": 5}, "spec.user", ["quotes"]),
        ({"clusterQueue": "A B"}, "spec.clusterQueue", ['"a-b"']),
        ({"duration": "soon"}, "spec.duration", ["duration"]),
        ({"ray": "yes"}, "spec.ray", ["true or false"]),
        ({"entrypoint": ["a"]}, "spec.entrypoint", ["text"]),
        ({"env": {"A": "b"}}, "spec.env", ["a list"]),
        ({"resources": {"requests": {"memory": "-1Gi"}}}, "spec.resources.requests.memory", ["negative"]),
        ({"job": []}, "spec.job", ["a mapping"]),
        ({"gpuResources": {"totalVram": "($vram)"}}, "spec.gpuResources.totalVram", ["template"]),
        ({"gpuResources": {"totalVram": 0}}, "spec.gpuResources.totalVram", ["less than 1 MiB"]),
        ({"gpuResources": {"totalVram": "1Pi"}}, "spec.gpuResources.totalVram", ["64 GPUs"]),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_a_bad_kaiwojob_gets_one_sentence(spec: dict[str, Any], field: str, parts: list[str]) -> None:
    check_refusal(kaiwojob(**spec), field, ["KaiwoJob 'k'", *parts])


def test_a_pod_is_no_kaiwojob() -> None:
    check_refusal({**pod(), "kind": "KaiwoJob"}, "apiVersion", ["kaiwo.silogen.ai/v1alpha1"])


@given(st.integers(1, MAX_TOTAL_GPUS))
def test_pods_have_exactly_the_gpus_that_were_asked_for(gpus: int) -> None:
    pods, smaller_pods, each = split_replicas(gpus)
    assert pods * each + smaller_pods * (each - 1) == gpus
    assert pods >= 1
    assert smaller_pods >= 0
    assert each <= GPUS_PER_NODE
    assert pods + smaller_pods == -(-gpus // GPUS_PER_NODE), "no more pods than hold them"
    assert not smaller_pods or each > 1, "no pod without a GPU"


@pytest.mark.parametrize("gpus", range(1, 130))
def test_a_job_asks_for_exactly_its_gpus(gpus: int) -> None:
    roles = one(kaiwojob(ray=True, gpus=gpus))[0].roles
    assert sum(role.count * role.request.gpus for role in roles) == gpus
    assert sum(role.count * role.request.cpu_milli for role in roles) == gpus * CPU_MILLI_PER_GPU
    assert sum(role.count * role.request.memory_mib for role in roles) == gpus * 32 * 1024
    assert len({role.name for role in roles}) == len(roles)


def test_written_resources_are_those_of_every_pod() -> None:
    wants = {"requests": {"cpu": "2", "memory": "1Gi"}}
    roles = one(kaiwojob(ray=True, gpus=9, resources=wants))[0].roles
    assert [(role.request.gpus, role.request.cpu_milli, role.request.memory_mib) for role in roles] == [
        (5, 2000, 1024),
        (4, 2000, 1024),
    ]


def test_uneven_pods_start_together_on_exactly_their_gpus() -> None:
    job = one(kaiwojob(ray=True, gpus=9))[0]
    world = World(nodes=2).tell(WorkloadChanged(job))
    plan = decide(world.snapshot())
    assert sorted(len(start.devices) for start in plan.starts) == [4, 5]
    assert len({start.node for start in plan.starts}) == 2
    alone = World(nodes=1).tell(WorkloadChanged(job))
    assert decide(alone.snapshot()).starts == (), "all of its pods or none"
