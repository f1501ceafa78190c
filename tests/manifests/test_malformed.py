"""What is malformed is never taken in silence: fields of the wrong kind, names in other scripts, lost indentation."""

from typing import Any

import pytest

from kaiwo.manifests import parse
from kaiwo.manifests.kinds.node_affinity import HOSTNAME
from kaiwo.model.affinity import NodeRule
from kaiwo.model.errors import ConfigError
from tests.manifests.texts import check_refusal, job, kaiwojob, one, pod, queue, request_of, warnings_of

ARABIC_THREE = "\u0663"  # a digit to Python's isdigit, and to no cluster
ENV = "spec.containers[0].env[0]"
TERM = "requiredDuringSchedulingIgnoredDuringExecution"


def with_name(document: dict[str, Any], name: Any, field: str = "containers") -> dict[str, Any]:
    spec = document["spec"]
    return {**document, "spec": {**spec, field: [*spec.get(field, ()), {"name": name, "image": "i"}]}}


@pytest.mark.parametrize("spec", [None, {}])
def test_a_kaiwojob_that_lost_its_spec_is_told_so(spec: Any) -> None:
    lost = {**kaiwojob(), "spec": spec}
    if spec is None:
        check_refusal(lost, "spec", ["is empty; write its fields below it"])
        del lost["spec"]
        check_refusal(lost, "spec", ["is missing; write its fields below it"])
    else:
        assert one(lost)[0].pods == 1  # nothing but defaults, and that was said


def test_a_queue_that_lost_its_spec_is_told_so() -> None:
    check_refusal({**queue(), "spec": None}, "spec", ["is empty"])


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"kind": []}, "spec.job.kind"),
        ({"kind": "Jobb"}, "spec.job.kind"),
        ({"apiVersion": "²"}, "spec.job.apiVersion"),
        ({"apiVersion": 1}, "spec.job.apiVersion"),
        ({"metadata": {"labells": {}}}, "spec.job.metadata.labells"),
        ({"metadata": 5}, "spec.job.metadata"),
    ],
)
def test_the_job_inside_a_kaiwojob_is_looked_at_too(part: dict[str, Any], field: str) -> None:
    inner = {name: value for name, value in job().items() if name in ("spec",)}
    assert one(kaiwojob(job=inner | {"apiVersion": "batch/v1", "kind": "Job"}))
    check_refusal(kaiwojob(job=inner | part), field, [])


@pytest.mark.parametrize("text", ["1h1h", "1m1h", "30s1m", "1d2d", "1h 1m", "1hh", "h", "1.5.5h", "１h"])
def test_each_unit_of_a_duration_stands_once_and_the_largest_first(text: str) -> None:
    check_refusal({"name": "t", "time": text}, "time", ['write it as "45m"'])


@pytest.mark.parametrize(
    ("text", "seconds"), [("1h30m", 5400), ("1w2d3h4m5s", 788_645), ("1.5h", 5400), ("2d", 172_800)]
)
def test_durations_that_people_write(text: str, seconds: int) -> None:
    assert one({"name": "t", "time": text})[0].time_limit_s == seconds


@pytest.mark.parametrize("value", ["1h1h", "1h", "60", 1.5, True, [60]])
def test_a_deadline_in_seconds_is_a_number(value: Any) -> None:
    check_refusal(job(activeDeadlineSeconds=value), "spec.activeDeadlineSeconds", ["a whole number"])
    check_refusal(pod(activeDeadlineSeconds=value), "spec.activeDeadlineSeconds", ["a whole number"])


def test_another_scheduler_is_named_in_a_warning() -> None:
    for document in (pod(schedulerName="other-scheduler"), job(template={"spec": pod(schedulerName="mine")["spec"]})):
        assert "but Kaiwo schedules whatever is submitted here" in warnings_of(document)
    for quiet in ("kaiwo-scheduler", "default-scheduler", None):
        assert "scheduler" not in warnings_of(pod(schedulerName=quiet))


@pytest.mark.parametrize("name", [ARABIC_THREE, "Main", "a.b", "", "x" * 64, 3, ["a"], "a_b", "ä"])
@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_a_container_has_a_name_that_every_cluster_takes(name: Any, field: str) -> None:
    document = with_name(pod(), name, field)
    index = len(document["spec"][field]) - 1
    check_refusal(document, f"spec.{field}[{index}].name", [])
    check_refusal(
        {**job(), "spec": {"template": {"spec": document["spec"]}}}, f"spec.template.{'spec'}.{field}[{index}].name", []
    )


def test_two_containers_never_share_a_name_also_where_one_of_them_starts_up() -> None:
    check_refusal(with_name(pod(), "main", "initContainers"), "spec.containers[0].name", ["appears twice"])


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (pod(schedulerName=5), "spec.schedulerName"),
        (pod(schedulerName=ARABIC_THREE), "spec.schedulerName"),
        (pod(terminationGracePeriodSeconds="30s"), "spec.terminationGracePeriodSeconds"),
        (pod(enableServiceLinks="no"), "spec.enableServiceLinks"),
        (pod(dnsPolicy=[]), "spec.dnsPolicy"),
        (pod(nodeName=ARABIC_THREE), "spec.nodeName"),
        (pod(containers=[{"name": "m", "restartPolicy": "Sometimes"}]), "spec.containers[0].restartPolicy"),
        (pod(containers=[{"name": "m", "env": [{"name": "A", "valueFrom": 5}]}]), f"{ENV}.valueFrom"),
        (
            pod(containers=[{"name": "m", "env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {}}}]}]),
            f"{ENV}.valueFrom",
        ),
        (
            pod(resources={"limits": {f"example.com/{ARABIC_THREE}": 1}}),
            f"spec.containers[0].resources.limits.example.com/{ARABIC_THREE}",
        ),
        (pod({f"example.com/{ARABIC_THREE}": "x"}), "metadata.annotations"),
        (
            job(template={"metadata": {"labels": {ARABIC_THREE: "x"}}, "spec": pod()["spec"]}),
            "spec.template.metadata.labels",
        ),
        (job(template={"metadata": {"labells": {}}, "spec": pod()["spec"]}), "spec.template.metadata.labells"),
        ({"kind": "ConfigMap", "apiVersion": []}, "apiVersion"),
        ({"kind": "PodList", "apiVersion": 1, "items": []}, "apiVersion"),
        (kaiwojob(rayJob=5), "spec.rayJob"),
        (kaiwojob(dangerous="yes"), "spec.dangerous"),
        (kaiwojob(version=2), "spec.version"),
        (
            pod(affinity={"nodeAffinity": {TERM: {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"], "valeus": []}]}
            ]}}}),
            f"spec.affinity.nodeAffinity.{TERM}.nodeSelectorTerms[0].matchFields[0].valeus",
        ),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_kind_is_named(document: dict[str, Any], field: str) -> None:
    check_refusal(document, field, [])


def test_what_a_cluster_fills_in_is_still_taken() -> None:
    filled = pod(
        schedulerName="default-scheduler",
        terminationGracePeriodSeconds=30,
        enableServiceLinks=True,
        dnsPolicy="ClusterFirst",
        nodeName="node-1.example.com",
    )
    assert request_of(filled).node_rules == (NodeRule(HOSTNAME, "In", ("node-1.example.com",)),)
    metadata = {"creationTimestamp": None, "name": "p", "labels": {"app": "x"}}
    assert one(job(template={"metadata": metadata, "spec": pod()["spec"]}))


@pytest.mark.parametrize("kind", ["Pod", "Job", "KaiwoJob", "KaiwoQueue"])
@pytest.mark.parametrize("value", [[], 5, "x", True])
def test_a_spec_or_metadata_that_is_no_mapping_is_refused(kind: str, value: Any) -> None:
    document = {"Pod": pod(), "Job": job(), "KaiwoJob": kaiwojob(gpus=1), "KaiwoQueue": queue()}[kind]
    for field in ("spec", "metadata"):
        with pytest.raises(ConfigError):
            parse({**document, field: value})
