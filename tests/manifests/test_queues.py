"""KaiwoQueue: exact amounts, and no slip becomes no limit."""

from typing import Any

import pytest

from kaiwo.manifests.parse import parse, parse_documents
from kaiwo.model.queue import UNLIMITED, Fairness, GpuModelAmounts, Queue, QueueAmounts, ReclaimStrategy, SharePolicy
from tests.manifests.texts import check_refusal, queue, warnings_of


def read(**spec: Any) -> Queue:
    (found,) = parse(queue(**spec)).queues
    return found


def test_a_name_is_enough() -> None:
    assert read() == Queue("q")


def test_amounts_are_exact() -> None:
    found = read(
        displayName="Research",
        parentQueue="lab",
        priority=7,
        resources={
            "gpu": {"quota": 10.5, "limit": "20", "overQuotaWeight": 50},
            "cpu": {"quota": "500m", "limit": 200},
            "memory": {"quota": "64Gi", "limit": -1, "overQuotaWeight": 0},
        },
    )
    assert (found.display_name, found.parent, found.priority) == ("Research", "lab", 7)
    assert found.gpu == QueueAmounts(10_500, 20_000, 50)
    assert found.cpu == QueueAmounts(500, 200_000, 1)
    assert found.memory == QueueAmounts(65_536, UNLIMITED, 0)


def test_fairness_and_whom_it_serves() -> None:
    found = read(
        fairness={"policy": "StrictPriority", "reclaimStrategy": "conservative", "minRuntime": "5m"},
        namespaces=["b", "a", "a"],
        users=["grace", "ada"],
    )
    assert found.fairness == Fairness(SharePolicy.STRICT_PRIORITY, ReclaimStrategy.CONSERVATIVE, 300)
    assert (found.namespaces, found.users) == (("a", "b"), ("ada", "grace"))
    assert read().fairness == Fairness(None, None, None)  # as the queue above


def test_a_gpu_model_has_amounts_of_its_own() -> None:
    models = {"mi300x": {"quota": 4, "limit": 8.5}, "AMD Instinct MI210": {"limit": 2}}
    assert read(resources={"gpu": {"quota": 6, "models": models}}).gpu_models == {
        "MI300X": GpuModelAmounts(4_000, 8_500),
        "MI210": GpuModelAmounts(UNLIMITED, 2_000),  # no quota of its own: the GPU quota counts
    }
    said = warnings_of(queue(resources={"gpu": {"models": {"MI9000": {"limit": 2}}}}))
    assert "spec.resources.gpu.models.MI9000" in said


@pytest.mark.parametrize(
    ("spec", "field", "parts"),
    [
        ({"dispayName": "x"}, "spec.dispayName", ["did you mean displayName?"]),
        ({"resources": {"gpus": {}}}, "spec.resources.gpus", ["did you mean gpu?"]),
        ({"resources": {"gpu": {"limt": 5}}}, "spec.resources.gpu.limt", ["did you mean limit?"]),
        ({"resources": {"gpu": {"quota": -1}}}, "spec.resources.gpu.quota", ["negative"]),
        ({"resources": {"gpu": {"quota": "many"}}}, "spec.resources.gpu.quota", ["not a quantity"]),
        ({"resources": {"gpu": {"quota": 0.0001}}}, "spec.resources.gpu.quota", ["0.001"]),
        ({"resources": {"gpu": {"quota": 10**9}}}, "spec.resources.gpu.quota", ["1,000,000 GPUs"]),
        ({"resources": {"gpu": {"quota": 10, "limit": 5}}}, "spec.resources.gpu.limit", ["below the quota"]),
        ({"resources": {"gpu": {"limit": -2}}}, "spec.resources.gpu.limit", ["negative"]),
        ({"resources": {"gpu": {"overQuotaWeight": -1}}}, "spec.resources.gpu.overQuotaWeight", ["0 to"]),
        (
            {"resources": {"gpu": {"models": {"MI300X": {"qota": 1}}}}},
            "spec.resources.gpu.models.MI300X.qota",
            ["quota"],
        ),
        (
            {"resources": {"gpu": {"models": {"MI300X": {"quota": 2, "limit": 1}}}}},
            "spec.resources.gpu.models.MI300X.limit",
            ["below the quota"],
        ),
        (
            {"resources": {"gpu": {"models": {"MI300X": {"quota": 1}, "mi300x": {"quota": 1}}}}},
            "spec.resources.gpu.models.mi300x",
            ["appears twice"],
        ),
        ({"fairness": {"minRuntime": "soon"}}, "spec.fairness.minRuntime", ["not a duration"]),
        ({"namespaces": ["Lab"]}, "spec.namespaces", ["lower-case"]),
        ({"resources": {"memory": {"quota": "64GB"}}}, "spec.resources.memory.quota", ['"64Gi"']),
        ({"resources": []}, "spec.resources", ["a mapping"]),
        ({"parentQueue": "q"}, "spec.parentQueue", ["the queue itself"]),
        ({"parentQueue": "A"}, "spec.parentQueue", ['"a"']),
        ({"priority": "high"}, "spec.priority", ["whole number"]),
        ({"shareWith": ["nobody", "queue"]}, "spec.shareWith", ["[nobody]", "[queue, user]"]),
        ({"shareWith": ["a.queue"]}, "spec.shareWith", ["[nobody]"]),
        ({"fairness": {"policy": "Fair"}}, "spec.fairness.policy", ["WeightedFair"]),
        ({"fairness": {"reclaim": "none"}}, "spec.fairness.reclaim", ["reclaimStrategy"]),
        ({"users": "ada"}, "spec.users", ["a list"]),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_a_bad_queue_gets_one_sentence(spec: dict[str, Any], field: str, parts: list[str]) -> None:
    check_refusal(queue(**spec), field, ["KaiwoQueue 'q'", *parts])


def test_a_queue_stands_once_in_a_text() -> None:
    check_refusal({"kind": "List", "items": [queue(), queue()]}, "name", ["queue 'q'", "appears twice"])
    assert len(parse_documents([queue(), {"name": "q"}]).queues) == 1


def test_an_older_api_is_refused() -> None:
    check_refusal({**queue(), "apiVersion": "kaiwo.ai/v1alpha1"}, "apiVersion", ["kaiwo.ai/v1alpha2"])
