"""`gpu-sharing: "true"` on whole GPUs: half of each on the books, a note that says so, and what contradicts it."""

from typing import Any

import pytest

from kaiwo.devices.agent.kubelet.bound_pods import SHARE_RESOURCE as AGENTS_RESOURCE
from kaiwo.manifests.values.gpu_request import SHARE_RESOURCE
from kaiwo.model.gpus.gpu import MAX_SHARERS, SHARED_MILLI, WHOLE_MILLI
from kaiwo.model.gpus.gpu_models import VENDOR_MODELS
from kaiwo.model.request import Request
from tests.manifests.texts import check_refusal, job, kaiwojob, one, pod, request_of, warnings_of

AMD, NVIDIA = {"limits": {"amd.com/gpu": 4}}, {"limits": {"nvidia.com/gpu": 1}}
SHARING = "kaiwo.ai/gpu-sharing"


def form(**fields: Any) -> dict[str, Any]:
    return {"name": "w", **fields}


def noted(notes: dict[str, str], resources: Any = None) -> dict[str, Any]:
    return pod({f"kaiwo.ai/{name}": value for name, value in notes.items()}, resources)


def check_halves(request: Request, devices: int, method: str = "time-slicing") -> None:
    assert request.is_fraction
    assert (request.gpus, request.gpu_milli, request.gpu_mib) == (devices, SHARED_MILLI, 0)
    assert request.isolation == method
    assert request.charge_milli == devices * SHARED_MILLI


def test_all_who_may_meet_on_a_gpu_are_no_more_than_the_gpu() -> None:
    assert MAX_SHARERS * SHARED_MILLI == WHOLE_MILLI


@pytest.mark.parametrize("prefix", ["kaiwo.ai/", "kaiwo.silogen.ai/"])
def test_whole_gpus_that_may_be_shared_are_half_of_each(prefix: str) -> None:
    document = pod({prefix + "gpu-sharing": "true"}, AMD)
    check_halves(request_of(document), 4)
    assert request_of(document).gpu_models == VENDOR_MODELS["amd"]
    note = "counts as 0.5 of each of 4 GPUs: up to 2 such workloads share one by time-slicing"
    assert warnings_of(document) == f"Pod 'p': {prefix}gpu-sharing {note}"


def test_of_one_gpu_the_note_says_so() -> None:
    assert "gpu-sharing counts as 0.5 of the GPU: up to 2" in warnings_of(pod({SHARING: "true"}, NVIDIA))


def test_without_a_vendor_the_devices_are_counted_by_annotation() -> None:
    check_halves(request_of(noted({"gpu-sharing": "true", "gpu-devices": "3"})), 3)
    check_halves(request_of(noted({"gpu-sharing": "true", "gpu-devices": "4"}, AMD)), 4)


def test_the_flag_on_a_job_reaches_its_pods() -> None:
    document = job(template={"spec": pod(resources=AMD)["spec"]})
    document["metadata"]["annotations"] = {SHARING: "true"}
    check_halves(request_of(document), 4)


def test_upstreams_kind_may_be_shared() -> None:
    document = kaiwojob(gpus=2, gpuVendor="amd")
    document["metadata"]["annotations"] = {"kaiwo.silogen.ai/gpu-sharing": "true"}
    request = request_of(document)
    check_halves(request, 2)
    assert request.cpu_milli == 8000  # as for two GPUs: the program runs on two


def test_the_short_form_says_it_too() -> None:
    check_halves(request_of(form(gpus=2, gpuSharing=True)), 2)
    check_halves(request_of(form(gpuDevices=2, gpuSharing=True)), 2)
    assert warnings_of(form(gpus=2, gpuSharing=True)).startswith("workload 'w': gpuSharing counts as 0.5 of each of 2")
    assert request_of(form(gpus=2, gpuSharing=False)).is_whole
    assert request_of(form(gpus=2)).is_whole


@pytest.mark.parametrize(
    ("method", "vendor", "grade"),
    [("mps", "nvidia", "mps"), ("cu-mask", "amd", "memory-capped"), ("time-slicing", "", "time-slicing")],
)
def test_a_method_beside_it_is_how_the_halves_are_kept_apart(method: str, vendor: str, grade: str) -> None:
    notes = {"gpu-sharing": "true", "gpu-isolation": method, "gpu-isolation-grade": grade, "gpu-devices": "1"}
    request = request_of(noted(notes))
    check_halves(request, 1, method)
    assert request.least_grade == grade
    assert request.gpu_models == VENDOR_MODELS.get(vendor, ())
    assert warnings_of(noted(notes)).endswith(f"share one by {method}")


@pytest.mark.parametrize("notes", [{"gpu-fraction": "0.25"}, {"gpu-memory": "4000"}])
def test_a_share_that_names_its_size_stays_as_it_is(notes: dict[str, str]) -> None:
    shared = noted(notes | {"gpu-sharing": "true"})
    assert request_of(shared) == request_of(noted(notes))
    assert warnings_of(shared) == ""


def test_where_no_gpu_is_asked_for_there_is_nothing_to_share_and_that_is_said() -> None:
    document = noted({"gpu-sharing": "true"})
    assert request_of(document).gpus == 0
    assert "gpu-sharing is ignored: no GPU is asked for; count them with kaiwo.ai/gpu-devices" in warnings_of(document)


@pytest.mark.parametrize(
    ("notes", "field", "parts"),
    [
        ({"gpu-partition": "CPX"}, "gpu-sharing", ["kaiwo.ai/gpu-partition", "not shared; remove one of the two"]),
        ({"gpu-isolation": "partition"}, "gpu-isolation", ["kaiwo.ai/gpu-sharing", "remove one of the two"]),
        ({"gpu-isolation-grade": "partition"}, "gpu-isolation-grade", ["not shared", "remove one"]),
        (
            {"gpu-isolation-grade": "partition", "gpu-isolation": "cu-mask"},
            "gpu-isolation-grade",
            ["not shared", "remove one"],
        ),
        (
            {"gpu-isolation-grade": "cu-mask"},
            "gpu-isolation-grade",
            ["alone is time-slicing; add kaiwo.ai/gpu-isolation: cu-mask (AMD) or mps (NVIDIA), or remove one"],
        ),
        ({"gpu-isolation-grade": "memory-capped", "gpu-isolation": "time-slicing"}, "gpu-isolation-grade", ["add"]),
        ({"gpu-isolation": "mps"}, "gpu-isolation", ["does not exist on AMD GPUs"]),
        ({"gpu-devices": "2"}, "gpu-devices", ["is 2 and amd.com/gpu is 4", "keep one"]),
        ({"gpu-fraction": "1"}, "gpu-fraction", ["is all of a GPU", "count the GPUs with kaiwo.ai/gpu-devices"]),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_contradictions_get_one_sentence(notes: dict[str, str], field: str, parts: list[str]) -> None:
    check_refusal(noted({"gpu-sharing": "true"} | notes, AMD), f"kaiwo.ai/{field}", ["Pod 'p'", *parts])


def test_the_same_contradictions_in_the_short_form() -> None:
    check_refusal(form(gpus=1, gpuSharing=True, gpuPartition="CPX"), "gpuSharing", ["gpuPartition"])
    check_refusal(form(gpus=1, gpuSharing=True, gpuIsolationGrade="mps"), "gpuIsolationGrade", ["add gpuIsolation"])
    check_refusal(form(gpuFraction="0.5", gpuSharing=False), "gpuSharing", ["remove one of the two"])
    check_refusal(form(gpus=1, gpuSharing="yes"), "gpuSharing", [])


def test_sub_groups_share_what_all_pods_ask_for() -> None:
    groups = [{"name": "a", "pods": 2}, {"name": "b", "pods": 1}]
    for role in one(form(gpus=2, gpuSharing=True, subGroups=groups))[0].roles:
        check_halves(role.request, 2)
    own = [{"name": "a", "pods": 2, "gpus": 1}]
    check_refusal(form(gpuSharing=True, subGroups=own), "gpuSharing", ["write gpus beside it"])


def test_what_a_kubelet_counts_of_shares_asks_for_nothing_here() -> None:
    assert SHARE_RESOURCE == AGENTS_RESOURCE
    document = noted({"gpu-sharing": "true", "gpu-devices": "2"}, {"limits": {SHARE_RESOURCE: 2, "example.com/x": 1}})
    assert request_of(document).extended == (("example.com/x", 1),)
    check_halves(request_of(document), 2)


@pytest.mark.parametrize(
    ("written", "rule"), [("anyone", ()), ("nobody", ("nobody",)), ("user, queue", ("queue", "user"))]
)
def test_who_may_share_its_gpu_is_read_from_forms_and_annotations(written: str, rule: tuple[str, ...]) -> None:
    assert request_of(form(gpuFraction=0.5, gpuShareWith=written)).share_with == rule
    assert request_of(noted({"gpu-fraction": "0.5", "gpu-share-with": written})).share_with == rule
    assert request_of(noted({"gpu-sharing": "true", "gpu-share-with": written}, AMD)).share_with == rule


def test_a_whole_gpu_needs_no_rule_about_who_shares_it() -> None:
    document = noted({"gpu-share-with": "nobody"}, NVIDIA)
    assert request_of(document).share_with == ()
    assert "gpu-share-with is not needed: what it requests is not shared" in warnings_of(document)


@pytest.mark.parametrize("written", ["team", "nobody,user", "User", ""])
def test_a_rule_that_means_nothing_is_refused(written: str) -> None:
    check_refusal(form(gpuFraction=0.5, gpuShareWith=written), "gpuShareWith", ["anyone, nobody", "queue,user"])
