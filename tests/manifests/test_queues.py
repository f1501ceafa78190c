"""KaiwoQueue: exact amounts, and no slip becomes no limit."""

from typing import Any

import pytest

from kaiwo.manifests import parse, parse_documents
from kaiwo.model.queue import UNLIMITED, Amounts, Queue
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
    assert found.gpu == Amounts(10_500, 20_000, 50)
    assert found.cpu == Amounts(500, 200_000, 1)
    assert found.memory == Amounts(65_536, UNLIMITED, 0)


def test_what_is_not_acted_on_yet_is_said() -> None:
    said = warnings_of(
        queue(
            fairness={"policy": "DRF", "reclaimStrategy": "aggressive", "minRuntime": "5m"},
            namespaces=["a"],
            users=["ada"],
            resources={"gpu": {"quota": 1, "models": {"MI300X": {"quota": 1, "limit": 2}}}},
        )
    )
    for part in (
        "spec.fairness",
        "spec.namespaces",
        "spec.users",
        "spec.resources.gpu.models",
        "does not act on it yet",
    ):
        assert part in said


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
        ({"resources": {"memory": {"quota": "64GB"}}}, "spec.resources.memory.quota", ['"64Gi"']),
        ({"resources": []}, "spec.resources", ["a mapping"]),
        ({"parentQueue": "q"}, "spec.parentQueue", ["the queue itself"]),
        ({"parentQueue": "A"}, "spec.parentQueue", ['"a"']),
        ({"priority": "high"}, "spec.priority", ["whole number"]),
        ({"fairness": {"policy": "Fair"}}, "spec.fairness.policy", ["WeightedFair"]),
        ({"fairness": {"reclaim": "none"}}, "spec.fairness.reclaim", ["reclaimStrategy"]),
        ({"users": "ada"}, "spec.users", ["a list"]),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_a_bad_queue_gets_one_sentence(spec: dict[str, Any], field: str, parts: list[str]) -> None:
    check_refusal(queue(**spec), field, ["KaiwoQueue 'q'", *parts])


def test_a_queue_stands_once_in_a_text() -> None:
    check_refusal({"kind": "List", "items": [queue(), queue()]}, "name", ["queue 'q'", "stands twice"])
    assert len(parse_documents([queue(), {"name": "q"}]).queues) == 1


def test_an_older_api_is_refused() -> None:
    check_refusal({**queue(), "apiVersion": "kaiwo.ai/v1alpha1"}, "apiVersion", ["kaiwo.ai/v1alpha2"])
