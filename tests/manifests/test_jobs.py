"""Batch Jobs, lists of objects, gangs of Pods, and which kinds are read at all."""

from typing import Any

import pytest

from kaiwo.manifests import describe_workload, parse
from kaiwo.manifests.parse import parse_documents
from tests.manifests.texts import check_refusal, job, kaiwojob, one, pod, queue, warnings_of


def annotated(document: dict[str, Any], **notes: str) -> dict[str, Any]:
    names = {"kaiwo.ai/" + name.replace("_", "-"): value for name, value in notes.items()}
    return {**document, "metadata": {**document["metadata"], "annotations": names}}


@pytest.mark.parametrize(
    ("spec", "count", "needed"),
    [
        ({}, 1, 1),
        ({"parallelism": 4}, 4, 4),
        ({"parallelism": 4, "completions": 4, "completionMode": "Indexed"}, 4, 4),
        ({"parallelism": 4, "completions": 2}, 2, 2),
        ({"parallelism": 2, "completions": 10}, 10, 1),
        ({"completions": 3}, 3, 1),
    ],
)
def test_the_pods_of_a_job(spec: dict[str, Any], count: int, needed: int) -> None:
    (role,) = one(job(**spec))[0].roles
    assert (role.count, role.needed) == (count, needed)


def test_a_job_may_start_with_fewer_pods() -> None:
    (role,) = one(annotated(job(parallelism=8), min_pods="2"))[0].roles
    assert (role.count, role.needed) == (8, 2)
    (role,) = one(annotated(job(parallelism=8), gang="false"))[0].roles
    assert role.needed == 1


def test_retries_time_and_hold_come_from_the_job() -> None:
    workload, program = one(job(backoffLimit=2, activeDeadlineSeconds=600, suspend=True))
    assert (program.retries, workload.time_limit_s, workload.held) == (2, 600, True)
    assert one(job())[1].retries == 6


def test_the_templates_annotation_counts_before_the_jobs() -> None:
    document = annotated(job(), gpu_fraction="0.5")
    document["spec"]["template"]["metadata"] = {"annotations": {"kaiwo.ai/gpu-fraction": "0.25"}}
    assert describe_workload(one(document)[0]) == "0.25 GPU"


@pytest.mark.parametrize(
    ("document", "field", "parts"),
    [
        (job(parallelism=0), "spec.parallelism", ["no pods", "suspend: true"]),
        (job(completions=0), "spec.completions", ["no pods"]),
        (job(parallelism=10_001), "spec.parallelism", ["10,000"]),
        (job(parallelism="4"), "spec.parallelism", ["whole number"]),
        (job(backoffLimit=-1), "spec.backoffLimit", ["0 to"]),
        (job(activeDeadlineSeconds=0), "spec.activeDeadlineSeconds", ["1 to 315,360,000"]),
        (job(completionMode="Random"), "spec.completionMode", ["Indexed"]),
        (job(template=[]), "spec.template", ["a mapping"]),
        (annotated(job(parallelism=2), min_pods="3"), "kaiwo.ai/min-pods", ["1 to 2"]),
        (annotated(job(), gang="maybe"), "kaiwo.ai/gang", ['"true" or "false"']),
        ({**job(), "spec": []}, "spec", ["a mapping"]),
        ({**job(), "apiVersion": "batch/v1beta1"}, "apiVersion", ["batch/v1"]),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_a_bad_job_gets_one_sentence(document: dict[str, Any], field: str, parts: list[str]) -> None:
    check_refusal(document, field, parts)


@pytest.mark.parametrize("spec", [None, {"template": {"metadata": {"labels": {"a": "b"}}}}])
def test_a_job_that_leaves_its_pods_out_is_taken_with_a_warning(spec: dict[str, Any] | None) -> None:
    """As documentation shows one that is about its labels."""
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    assert one(document)[0].pods == 1
    assert "requests nothing" in warnings_of(document)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.template"),
        ({"parallelism": 3}, "spec.template"),
        ({"template": {}}, "spec.template"),
        ({"template": {"spec": {}}}, "spec.template.spec.containers"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers"),
        ({"template": {"spec": {"restartPolicy": "Never"}}}, "spec.template.spec.containers"),
    ],
)
def test_a_job_with_an_empty_template_is_refused(spec: dict[str, Any], field: str) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    check_refusal(job, field, ["Job 'j'", "container"])
    wrapped = {"kind": "KaiwoJob", "metadata": {"name": "k"}, "spec": {"gpus": 1, "job": {"spec": spec}}}
    check_refusal(wrapped, field.replace("spec.", "spec.job.spec.", 1), ["KaiwoJob 'k'", "container"])


def member(name: str, gpus: int = 0, **notes: str) -> dict[str, Any]:
    document = pod(resources={"limits": {"amd.com/gpu": gpus}} if gpus else None)
    document["metadata"]["name"] = name
    return annotated(document, gang="g", **notes)


def test_pods_of_one_gang_are_one_workload() -> None:
    parsed = parse_documents([member("a"), {"name": "other"}, member("b", 4), member("c", 4)])
    gang, other = (workload for workload, _ in parsed.submissions)
    assert (gang.name, other.name) == ("default/g", "default/other")
    assert [(role.name, role.count) for role in gang.roles] == [("a", 1), ("b", 2)]
    assert sum(role.needed for role in gang.roles) > 1


def test_equal_pods_of_a_gang_are_one_role() -> None:
    ((gang, _),) = parse_documents([member("a", 2), member("b", 2)]).submissions
    assert [(role.name, role.count) for role in gang.roles] == [("main", 2)]


def test_kueues_pod_groups_are_gangs() -> None:
    first, second = pod(), pod()
    for document, name in ((first, "a"), (second, "b")):
        document["metadata"] = {
            "name": name,
            "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
        }
    ((gang, _),) = parse_documents([first, second]).submissions
    assert (gang.name, gang.pods) == ("default/g", 2)


@pytest.mark.parametrize(
    ("documents", "field", "parts"),
    [
        ([member("a", gang_size="2")], "kaiwo.ai/gang-size", ["is 2", "has 1", "one text"]),
        ([member("a"), member("b", queue="x")], "queue", ["Pod 'b'", "differs", "Pod 'a'"]),
        ([annotated(pod(), gang="")], "kaiwo.ai/gang", ["a name must"]),
        ([annotated(pod(), gang_size="2")], "kaiwo.ai/gang-size", ["no gang is named", "kaiwo.ai/gang"]),
        ([member("a", gang_size="0")], "kaiwo.ai/gang-size", ["whole number"]),
        ([member("a"), {"name": "g"}], "name", ["appears twice"]),
    ],
)
def test_a_gang_that_is_not_one_is_refused(documents: list[Any], field: str, parts: list[str]) -> None:
    check_refusal({"kind": "List", "items": documents}, field, parts)


def test_a_list_holds_objects() -> None:
    parsed = parse({"apiVersion": "v1", "kind": "List", "items": [job(), queue(), kaiwojob(gpus=1)]})
    assert [workload.name for workload, _ in parsed.submissions] == ["default/j", "default/k"]
    assert [item.name for item in parsed.queues] == ["q"]


@pytest.mark.parametrize(
    ("document", "field", "parts"),
    [
        ({"kind": "Deployment", "apiVersion": "apps/v1"}, "kind", ['"Deployment"', "not read here", "KaiwoJob"]),
        ({"kind": "pod", "apiVersion": "v1"}, "kind", ["did you mean Pod?"]),
        ({"kind": 5}, "kind", ["write one of"]),
        ({"kind": None, "apiVersion": "v1"}, "kind", ["is missing"]),
        ({"kind": "List", "items": {}}, "document 1", ["own document"]),
        ({"kind": "List", "items": [{"kind": "List", "items": []}]}, "document 1, item 1", ["own document"]),
        ({"kind": "List", "items": ["x"]}, "document 1, item 1", ["not a mapping"]),
        ({"kind": "Pod", "metadata": []}, "metadata", ["a mapping"]),
    ],
)
def test_what_is_not_read_is_said(document: dict[str, Any], field: str, parts: list[str]) -> None:
    check_refusal(document, field, parts)


def test_objects_that_bring_no_work_are_left_out() -> None:
    parsed = parse_documents([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}, {"name": "t"}])
    assert len(parsed.submissions) == 1
    assert "a Namespace describes no workload" in parsed.warnings[0]
