"""A Pod: what its containers ask for together, what its annotations add, and what contradicts itself."""

from typing import Any

import pytest

from kaiwo.manifests import describe_workload
from kaiwo.model.affinity import NodeRule
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu_models import VENDOR_MODELS
from kaiwo.model.request import Toleration
from tests.manifests.texts import check_refusal, job, kaiwojob, one, pod, request_of, warnings_of

AMD = {"limits": {"amd.com/gpu": 1}}


def containers(*resources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made = [{"name": f"c{index}", "resources": item} for index, item in enumerate(resources)]
    return pod(containers=made, **spec)


def test_a_pod_is_a_workload_of_one_that_takes_simulated_time() -> None:
    workload, program = one(pod(resources={"requests": {"cpu": "500m", "memory": "1Gi"}}))
    assert workload.name == "default/p"
    assert workload.pods == 1
    assert (program.command, program.image) == ((), "example/main")
    assert (workload.roles[0].request.cpu_milli, workload.roles[0].request.memory_mib) == (500, 1024)


def test_containers_are_summed_and_a_limit_stands_in_for_a_request() -> None:
    request = request_of(
        containers({"requests": {"cpu": 1, "memory": "1Gi"}}, {"limits": {"cpu": "2", "memory": "1M"}})
    )
    assert (request.cpu_milli, request.memory_mib) == (3000, 1025)


def test_what_is_not_written_is_nothing() -> None:
    request = request_of(pod())
    assert (request.cpu_milli, request.memory_mib, request.gpus) == (0, 0, 0)


@pytest.mark.parametrize(
    ("init", "cpu_milli"),
    [
        ([{"requests": {"cpu": "1"}}], 2000),  # less than the rest together: the rest counts
        ([{"requests": {"cpu": "5"}}], 5000),  # more: it counts
        ([{"requests": {"cpu": "3"}}, {"requests": {"cpu": "4"}}], 4000),  # one after the other
    ],
)
def test_start_up_containers_count_only_where_they_ask_for_more(init: list[Any], cpu_milli: int) -> None:
    made = [{"name": f"i{index}", "resources": item} for index, item in enumerate(init)]
    document = containers({"requests": {"cpu": "2"}}, initContainers=made)
    assert request_of(document).cpu_milli == cpu_milli


def test_a_start_up_container_that_stays_is_summed() -> None:
    init = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "load", "resources": {"requests": {"cpu": "5"}}},
    ]
    assert request_of(containers({"requests": {"cpu": "2"}}, initContainers=init)).cpu_milli == 6000
    assert request_of(containers({"requests": {"cpu": "9"}}, initContainers=init)).cpu_milli == 10_000


def test_overhead_and_the_pods_own_resources_count() -> None:
    document = pod(resources={"requests": {"cpu": 1}}, overhead={"cpu": "250m"})
    document["spec"]["resources"] = {"requests": {"cpu": "4"}}
    assert request_of(document).cpu_milli == 4250


def test_gpus_of_a_vendor_are_any_of_its_models() -> None:
    request = request_of(pod(resources={"limits": {"amd.com/gpu": "4"}}))
    assert (request.gpus, request.gpu_models) == (4, VENDOR_MODELS["amd"])
    assert request_of(pod(resources={"limits": {"nvidia.com/gpu": 2}})).gpu_models == VENDOR_MODELS["nvidia"]
    models = pod({"kaiwo.ai/gpu-models": "MI300X, mi325x"}, {"limits": {"amd.com/gpu": 1}})
    assert request_of(models).gpu_models == ("MI300X", "MI325X")


def test_other_resources_are_kept_by_name() -> None:
    resources = {"limits": {"rdma/hca": 2, "example.com/fpga": "1", "ephemeral-storage": "1Gi", "zero.io/x": 0}}
    assert request_of(pod(resources=resources)).extended == (("example.com/fpga", 1), ("rdma/hca", 2))
    assert "ephemeral-storage is not counted" in warnings_of(pod(resources=resources))


@pytest.mark.parametrize("prefix", ["kaiwo.ai/", "kaiwo.silogen.ai/"])
@pytest.mark.parametrize(
    ("notes", "resources", "expected"),
    [
        ({"gpu-fraction": "0.5"}, {}, (1, 500, 0)),
        ({"gpu-fraction": "0.5", "gpu-sharing": "true"}, {}, (1, 500, 0)),
        ({"gpu-fraction": "0.5", "gpu-devices": "2"}, {}, (2, 500, 0)),
        ({"gpu-fraction": "0.5"}, AMD, (1, 500, 0)),
        ({"gpu-fraction": "0.5", "gpu-devices": "2"}, {"limits": {"amd.com/gpu": 2}}, (2, 500, 0)),
        ({"gpu-memory": "4000"}, {}, (1, 1000, 4000)),
        ({"gpu-memory": "4Gi", "gpu-devices": "3"}, {}, (3, 1000, 4096)),
        ({"gpu-fraction": "0.5", "gpu-memory": "4Gi"}, {}, (1, 500, 4096)),
        ({"gpu-sharing": "false"}, AMD, (1, 1000, 0)),
        ({"gpu-sharing": "true"}, AMD, (1, 500, 0)),
    ],
)
def test_shares_of_gpus(prefix: str, notes: dict[str, str], resources: Any, expected: tuple[int, int, int]) -> None:
    request = request_of(pod({prefix + name: value for name, value in notes.items()}, resources))
    assert (request.gpus, request.gpu_milli, request.gpu_mib) == expected


def test_all_of_a_gpu_and_an_amount_of_memory_is_a_whole_gpu_that_has_it() -> None:
    request = request_of(pod({"kaiwo.ai/gpu-fraction": "1", "kaiwo.ai/gpu-memory": "100Gi"}))
    assert request.is_whole
    assert request.device_mib == 102_400


def test_our_own_annotation_counts_before_upstreams() -> None:
    notes = {"kaiwo.silogen.ai/gpu-fraction": "0.5", "kaiwo.ai/gpu-fraction": "0.25"}
    assert request_of(pod(notes)).gpu_milli == 250


@pytest.mark.parametrize(
    ("notes", "resources", "field", "parts"),
    [
        ({"gpu-fraction": "1.5"}, {}, "kaiwo.ai/gpu-fraction", ["0.01 to 1", "whole GPUs"]),
        ({"gpu-fraction": "50%"}, {}, "kaiwo.ai/gpu-fraction", ["percent"]),
        ({"gpu-fraction": "0.5", "gpu-sharing": "false"}, {}, "kaiwo.ai/gpu-sharing", ["remove one"]),
        ({"gpu-memory": "4000", "gpu-sharing": "false"}, {}, "kaiwo.ai/gpu-sharing", ["kaiwo.ai/gpu-memory"]),
        ({"gpu-sharing": "yes"}, {}, "kaiwo.ai/gpu-sharing", ['"true" or "false"']),
        ({"gpu-memory": "-4000"}, {}, "kaiwo.ai/gpu-memory", ["negative"]),
        ({"gpu-devices": "2"}, AMD, "kaiwo.ai/gpu-devices", ["kaiwo.ai/gpu-fraction", "amd.com/gpu"]),
        ({"gpu-devices": "two", "gpu-fraction": "0.5"}, {}, "kaiwo.ai/gpu-devices", ["whole number"]),
        ({"gpu-fraction": "0.5"}, {"limits": {"amd.com/gpu": 2}}, "amd.com/gpu", ['kaiwo.ai/gpu-devices: "2"']),
        ({"gpu-isolation": "mps", "gpu-fraction": "0.5"}, AMD, "kaiwo.ai/gpu-isolation", ["AMD", "cu-mask"]),
        (
            {"gpu-isolation": "mps", "gpu-fraction": "0.5", "gpu-models": "MI300X"},
            {},
            "kaiwo.ai/gpu-isolation",
            ["AMD", "time-slicing"],
        ),
        (
            {"gpu-isolation": "cu-mask", "gpu-fraction": "0.5"},
            {"limits": {"nvidia.com/gpu": 1}},
            "kaiwo.ai/gpu-isolation",
            ["NVIDIA", "mps"],
        ),
        ({"gpu-isolation": "msp"}, {}, "kaiwo.ai/gpu-isolation", ["did you mean mps?"]),
        ({"type": "train"}, {}, "kaiwo.ai/type", ["training"]),
        ({"priority": "high"}, {}, "kaiwo.ai/priority", ["whole number"]),
        ({"preemptible": "no"}, {}, "kaiwo.ai/preemptible", ['"true" or "false"']),
        ({"queue": "A B"}, {}, "kaiwo.ai/queue", ['"a-b"']),
        ({"simulate": "soon"}, {}, "kaiwo.ai/simulate", ["duration"]),
        ({"run-locally": "true"}, {}, "kaiwo.ai/run-locally", ["no command"]),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_contradictions_get_one_sentence(notes: dict[str, str], resources: Any, field: str, parts: list[str]) -> None:
    document = pod({f"kaiwo.ai/{name}": value for name, value in notes.items()}, resources)
    check_refusal(document, field, ["Pod 'p'", *parts])


GPU = "spec.containers[0].resources.limits.amd.com/gpu"


@pytest.mark.parametrize(
    ("resources", "field", "parts"),
    [
        ({"limits": {"amd.com/gpu": 500}}, GPU, ["500 whole GPUs, not half of one", 'kaiwo.ai/gpu-fraction: "0.5"']),
        ({"limits": {"amd.com/gpu": 0.5}}, GPU, ['kaiwo.ai/gpu-fraction: "0.5"']),
        ({"limits": {"amd.com/gpu": "500m"}}, GPU, ['kaiwo.ai/gpu-fraction: "0.5"']),
        ({"limits": {"amd.com/gpu": -1}}, GPU, ["negative"]),
        ({"limits": {"amd.com/gpu": "($node_gpus)"}}, GPU, ["template", "fill it in"]),
        ({"limits": {"amd.com/gpu": 1, "nvidia.com/gpu": 1}}, "amd.com/gpu and nvidia.com/gpu", ["keep one"]),
        ({"limits": {"amd.com/gpu": 1}, "requests": {"amd.com/gpu": 0}}, GPU, ["must be equal"]),
        ({"limits": {"cpu": 1}, "requests": {"cpu": 2}}, "spec.containers[0].resources.requests.cpu", ["the limit"]),
        ({"requests": {"memory": "-1Gi"}}, "spec.containers[0].resources.requests.memory", ["negative"]),
        ({"requests": {"cpus": 1}}, "spec.containers[0].resources.requests.cpus", ["not a known resource"]),
        ({"requests": {"a.io/x": 0.5}}, "spec.containers[0].resources.requests.a.io/x", ["whole number"]),
        ({"requests": 4}, "spec.containers[0].resources.requests", ["a mapping"]),
        ([], "spec.containers[0].resources", ["a mapping"]),
        ({"claims": [{"name": "x"}]}, "spec.containers[0].resources.claims", ["amd.com/gpu"]),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_impossible_amounts_get_one_sentence(resources: Any, field: str, parts: list[str]) -> None:
    check_refusal(pod(resources=resources), field, parts)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("amd.com/gpus", "amd.com/gpu"),
        ("amd.com/GPU", "amd.com/gpu"),
        ("AMD.com/gpu", "amd.com/gpu"),
        ("amd/gpu", "amd.com/gpu"),
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("nvidia.com/gp", "nvidia.com/gpu"),
        ("nvidia/gpu", "nvidia.com/gpu"),
    ],
)
def test_a_slip_in_the_name_of_a_gpu_resource_says_what_was_meant(slip: str, meant: str) -> None:
    field = f"spec.containers[0].resources.limits.{slip}"
    check_refusal(pod(resources={"limits": {slip: 8}}), field, ["Pod 'p'", f"write {meant}"])
    in_job = field.replace("spec.", "spec.template.spec.", 1)
    check_refusal(job(template={"spec": containers({"limits": {slip: 8}})["spec"]}), in_job, [f"write {meant}"])
    check_refusal(kaiwojob(resources={"limits": {slip: 8}}), f"spec.resources.limits.{slip}", [f"write {meant}"])


@pytest.mark.parametrize(
    "name",
    ["example.com/fpga", "nvidia.com/gpumem", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "amd.com/cpx_nps4",
     "gpu.intel.com/xe", "arm.com/gpu"],
)  # fmt: skip
def test_an_unknown_resource_is_no_slip(name: str) -> None:
    document = pod(resources={"limits": {name: 2}})
    assert request_of(document).extended == ((name, 2),)
    assert describe_workload(one(document)[0]) == f"2 {name}"


@pytest.mark.parametrize("spec", [{}, None, {"containers": []}, {"containers": None}, {"restartPolicy": "Never"}])
def test_a_pod_without_containers_is_refused(spec: dict[str, Any] | None) -> None:
    document = {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    check_refusal(document, "spec.containers", ["Pod 'p'", "needs a container"])


@pytest.mark.parametrize("containers", [[{}], [{"image": "x"}], [{"name": "a"}, {"name": "b"}, {"name": "b"}]])
def test_every_container_has_a_name_of_its_own(containers: list[dict[str, str]]) -> None:
    field = f"spec.containers[{len(containers) // 2}].name"
    check_refusal(pod(containers=containers), field, ["Pod 'p'", "a name of its own"])


def test_the_containers_gpus_are_bounded_together() -> None:
    check_refusal(containers(*[{"limits": {"amd.com/gpu": 40}}] * 2), "amd.com/gpu", ["80 GPUs", "64"])


def test_a_command_runs_only_where_somebody_says_so() -> None:
    made = [{"name": "a", "image": "x", "command": ["sh", "-c"], "args": ["true"], "workingDir": "/tmp"}]
    _, program = one(pod(containers=made))
    assert (program.command, program.workdir) == ((), "")
    assert "kaiwo.ai/run-locally" in warnings_of(pod(containers=made))
    _, program = one(pod({"kaiwo.ai/run-locally": "true"}, containers=made))
    assert (program.command, program.workdir) == (("sh", "-c", "true"), "/tmp")


def test_a_local_command_runs_in_an_absolute_folder() -> None:
    made = [{"name": "a", "command": ["true"], "workingDir": "here"}]
    check_refusal(
        pod({"kaiwo.ai/run-locally": "true"}, containers=made), "spec.containers[0].workingDir", ["start it with /"]
    )


def test_environment_from_elsewhere_is_left_out_and_said() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "hunter2"}}}]
    document = pod(containers=[{"name": "a", "env": env}])
    assert one(document)[1].env == {"A": "1"}
    assert "takes 1 of its values from secrets" in warnings_of(document)
    assert "hunter2" not in warnings_of(document)


def test_annotations_speak_for_the_workload() -> None:
    notes = {
        "kaiwo.ai/queue": "vision",
        "kaiwo.ai/user": "ada",
        "kaiwo.ai/type": "notebook",
        "kaiwo.ai/preemptible": "false",
        "kaiwo.ai/time": "2h",
        "kaiwo.ai/estimate": "1h",
        "kaiwo.ai/simulate": "30m",
    }
    workload, program = one(pod(notes))
    assert (workload.queue, workload.user, workload.kind) == ("vision", "ada", "notebook")
    assert (workload.priority, workload.preemptible) == (75, False)
    assert (workload.time_limit_s, workload.estimate_s, program.simulated_s) == (7200, 3600, 1800)
    assert one(pod({"kaiwo.ai/priority": "7"}))[0].priority == 7


def test_the_queue_may_be_a_label() -> None:
    document = pod()
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
    assert one(document)[0].queue == "team-a"


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({"priorityClassName": "high"}, 1000),
        ({"priorityClassName": "low-priority"}, 10),
        ({"priorityClassName": "system-node-critical"}, 2_000_001_000),
        ({"priorityClassName": "123"}, 123),
        ({"priority": 9}, 9),
        ({"priorityClassName": "gold"}, 50),
    ],
)
def test_priority_classes(spec: dict[str, Any], priority: int) -> None:
    assert one(pod(**spec))[0].priority == priority


def test_an_unknown_priority_class_is_said() -> None:
    assert "spec.priorityClassName" in warnings_of(pod(priorityClassName="gold"))


@pytest.mark.parametrize(("policy", "retries"), [("Never", 0), ("OnFailure", 6), ("Always", 6)])
def test_restart_policies(policy: str, retries: int) -> None:
    assert one(pod(restartPolicy=policy))[1].retries == retries


def test_where_a_pod_may_go() -> None:
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "gpu", "operator": "In", "values": ["a", "b"]},
                            {"key": "old", "operator": "DoesNotExist"},
                            {"key": "rank", "operator": "Gt", "values": ["4"]},
                        ],
                        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                    }
                ]
            }
        }
    }
    tolerations = [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}]
    request = request_of(pod(nodeSelector={"zone": "1"}, affinity=affinity, tolerations=tolerations))
    assert request.node_rules == (
        NodeRule("zone", "In", ("1",)),
        NodeRule("gpu", "In", ("a", "b")),
        NodeRule("old", "DoesNotExist"),
        NodeRule("rank", "Gt", ("4",)),
        NodeRule("kubernetes.io/hostname", "In", ("n1",)),
    )
    assert request.tolerations == (Toleration("", "Exists"), Toleration("a", "Equal", "b", "NoExecute"))


TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return pod(affinity={"nodeAffinity": rule})


@pytest.mark.parametrize(
    ("document", "field", "parts"),
    [
        (required({}, {}), TERMS, ["2 alternative terms", "write one term"]),
        (
            required({"matchExpressions": [{"key": "a", "operator": "Is"}]}),
            f"{TERMS}[0].matchExpressions[0].operator",
            ["NotIn"],
        ),
        (
            required({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            f"{TERMS}[0].matchExpressions[0].values",
            ["at least one"],
        ),
        (
            required({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]}),
            f"{TERMS}[0].matchExpressions[0].values",
            ["whole number"],
        ),
        (required({"matchFields": [{"key": "x"}]}), f"{TERMS}[0].matchFields[0].key", ["metadata.name"]),
        (pod(tolerations=[{"key": "a", "operator": "Maybe"}]), "spec.tolerations[0]", ["Equal or Exists"]),
        (pod(tolerations=[{"key": "a", "effect": "Never"}]), "spec.tolerations[0]", ["NoSchedule"]),
        (pod(nodeSelector={"a": 5}), "spec.nodeSelector.a", ["quotes"]),
        (pod(resourceClaims=[{"name": "x"}]), "spec.resourceClaims", ["amd.com/gpu"]),
        (pod(restartPolicy="Sometimes"), "spec.restartPolicy", ["Never"]),
        (pod(containers={}), "spec.containers", ["a list"]),
        (pod(containers=["x"]), "spec.containers[0]", ["a mapping"]),
        (pod(containers=[{"name": "a", "command": "sh"}]), "spec.containers[0].command", ["a list"]),
        (
            pod(containers=[{"name": "a", "env": [{"name": "A", "value": 5}]}]),
            "spec.containers[0].env[0].value",
            ["quotes"],
        ),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_what_cannot_be_kept_is_refused(document: dict[str, Any], field: str, parts: list[str]) -> None:
    check_refusal(document, field, parts)


def test_what_is_not_used_is_said() -> None:
    made = [{"name": "a", "ports": [{"containerPort": 80}], "volumeMounts": []}]
    said = warnings_of(pod({"kaiwo.ai/granted-devices": "x"}, containers=made, volumes=[{"name": "x"}]))
    assert "spec.containers[0].ports" in said
    assert "spec.volumes is not used here" in said
    assert "annotations not used here: kaiwo.ai/granted-devices" in said


@pytest.mark.parametrize(
    ("document", "parts"),
    [
        (pod({"kaiwo.ai/gpu-fracton": "0.5"}), ["kaiwo.ai/gpu-fracton", "did you mean kaiwo.ai/gpu-fraction?"]),
        (pod(podPlan=1), ["spec.podPlan", "not a known field"]),
        (pod(containers=[{"name": "a", "comand": ["x"]}]), ["comand", "did you mean command?"]),
        (pod(containers=[{"name": "a", "resources": {"limts": {}}}]), ["limts", "did you mean limits?"]),
    ],
)
def test_a_slip_is_an_error_and_never_work_without_its_gpus(document: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        one(document)
    for part in parts:
        assert part in str(caught.value)


def test_isolation_is_part_of_the_request_and_names_the_vendor() -> None:
    notes = {"gpu-fraction": "0.5", "gpu-isolation": "mps", "gpu-isolation-grade": "mps"}
    document = pod({f"kaiwo.ai/{key}": value for key, value in notes.items()})
    request = request_of(document)
    assert request.gpu_models == VENDOR_MODELS["nvidia"]
    assert (request.isolation, request.least_grade) == ("mps", "mps")
    assert warnings_of(document) == ""


@pytest.mark.parametrize(
    ("notes", "says"),
    [
        ({"gpu-fraction": "0.5", "gpu-isolation": "magic"}, "write mps, time-slicing, cu-mask or partition"),
        ({"gpu-fraction": "0.5", "gpu-isolation-grade": "best"}, "write partition, memory-capped, cu-mask, mps or"),
        ({"gpu-fraction": "0.5", "gpu-isolation": "partition"}, "asks for a share, which is not a partition"),
        ({"gpu-memory": "4000", "gpu-isolation": "mps", "gpu-models": "MI300X"}, "does not exist on AMD GPUs"),
    ],
)
def test_an_isolation_that_cannot_be_is_refused(notes: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        one(pod({f"kaiwo.ai/{key}": value for key, value in notes.items()}))


def test_isolation_of_a_whole_gpu_is_not_needed_and_said() -> None:
    document = pod({"kaiwo.ai/gpu-isolation": "time-slicing"})
    document["spec"]["containers"][0]["resources"] = {"limits": {"amd.com/gpu": "1"}}
    assert "what it requests is not shared" in warnings_of(document)


def test_scheduling_gates_hold_it() -> None:
    assert one(pod(schedulingGates=[{"name": "wait"}]))[0].held


@pytest.mark.parametrize(
    ("metadata", "field", "parts"),
    [
        ({}, "metadata.name", ["document 1 (Pod)", "is missing"]),
        ({"generateName": "a-"}, "metadata.name", ["generateName"]),
        ({"name": "A"}, "metadata.name", ["Pod 'A'", 'write "a"']),
        ({"name": "a", "labels": {"b": 1}}, "metadata.labels.b", ["quotes"]),
        ({"name": "a", "labels": {"b": "c d"}}, "metadata.labels.b", ["63"]),
        ({"name": "a", "annotations": {"b": 1}}, "metadata.annotations.b", ["quotes"]),
        ({"name": "a", "namespace": "X"}, "metadata.namespace", ['"x"']),
    ],
)
def test_metadata_is_checked(metadata: dict[str, Any], field: str, parts: list[str]) -> None:
    check_refusal({**pod(), "metadata": metadata}, field, parts)
