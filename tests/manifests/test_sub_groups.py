"""Sub-groups in the short form: what they mean, and what is refused."""

from typing import Any

import pytest

from kaiwo.manifests import describe_workload
from kaiwo.model.workload import SubGroup
from tests.manifests.texts import check_refusal, one, pod


def replicas(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"r{number}", "pods": 2, **more} for number in range(count)]


def test_two_of_three_replicas() -> None:
    workload, _ = one({"name": "serve", "gpus": 4, "minSubGroups": 2, "subGroups": replicas(3)})
    assert [(role.name, role.count, role.needed, role.request.gpus) for role in workload.roles] == [
        ("r0", 2, 2, 4), ("r1", 2, 2, 4), ("r2", 2, 2, 4),
    ]  # fmt: skip
    assert workload.groups == (SubGroup(minimum=2),)
    assert describe_workload(workload) == "3 x (2 pods x 4 GPUs), at least 2 of 3 sub-groups"


def test_a_tree_with_pods_that_differ() -> None:
    workload, _ = one(
        """
        name: serve
        gpus: 8
        minSubGroups: 1
        subGroups:
        - {name: left}
        - {name: left-head, parent: left, pods: 1, gpus: 0, cpu: 4}
        - {name: left-workers, parent: left, pods: 4, minPods: 2}
        - {name: right, pods: 1}
        """
    )
    assert workload.groups == (SubGroup(minimum=1), SubGroup("left"))
    assert [(role.name, role.group, role.count, role.needed, role.request.gpus) for role in workload.roles] == [
        ("left-head", "left", 1, 1, 0), ("left-workers", "left", 4, 2, 8), ("right", "", 1, 1, 8),
    ]  # fmt: skip


def test_sub_groups_that_are_all_needed_are_roles() -> None:
    workload, _ = one({"name": "serve", "subGroups": replicas(2)})
    assert workload.groups == ()
    assert workload.pods == 4


def test_who_leads() -> None:
    groups = [{"name": "head", "pods": 1, "leader": True, "gpus": 0}, {"name": "workers", "pods": 4}]
    workload, _ = one({"name": "ray", "gpus": 8, "subGroups": groups})
    assert [(role.name, role.leads) for role in workload.roles] == [("head", True), ("workers", False)]


def test_a_pod_leads_its_gang() -> None:
    text = "---".join(
        f"""
apiVersion: v1
kind: Pod
metadata: {{name: p{number}, annotations: {{kaiwo.ai/gang: g{leads}}}}}
spec: {{restartPolicy: Never, containers: [{{name: main, image: example/main}}]}}
"""
        for number, leads in enumerate(("", ', kaiwo.ai/leader: "true"', ""))
    )
    workload, _ = one(text)
    assert [(role.name, role.count, role.leads) for role in workload.roles] == [("p1", 1, True), ("p0", 2, False)]
    check_refusal(pod({"kaiwo.ai/leader": "true"}), "kaiwo.ai/leader", ["no gang is named"])


@pytest.mark.parametrize(
    ("more", "field", "parts"),
    [
        ({"subGroups": replicas(2), "minSubGroups": 3}, "subGroups", ["needs 3 of the 2 parts of the workload"]),
        ({"subGroups": replicas(2), "minSubGroups": 0}, "minSubGroups", ["1"]),
        ({"subGroups": replicas(2), "pods": 4}, "subGroups", ["remove pods and minPods"]),
        ({"minSubGroups": 1}, "minSubGroups", ["needs subGroups"]),
        ({"subGroups": [*replicas(1), *replicas(1)]}, "subGroups", ["names 'r0' twice"]),
        ({"subGroups": replicas(1, parent="up")}, "subGroups", ["the sub-group 'up', which it does not have"]),
        ({"subGroups": [{"name": "empty"}, *replicas(1)]}, "subGroups", ["nothing in the sub-group 'empty'"]),
        ({"subGroups": replicas(1, minPods=3)}, "subGroups[0].minPods", ["is 3 and pods is 2"]),
        ({"subGroups": replicas(1, minSubGroups=1)}, "subGroups[0].minSubGroups", ["use minPods"]),
        ({"subGroups": [{"name": "a", "gpus": 1}]}, "subGroups[0].pods", ["write how many there are"]),
        ({"subGroups": replicas(1, gpus=1), "gpuFraction": "0.5"}, "subGroups[0].gpus", ["a share of GPUs"]),
        ({"subGroups": replicas(1, podz=1)}, "subGroups[0].podz", ["pods"]),
        ({"subGroups": [{"name": "a", "leader": True}]}, "subGroups[0].leader", ["whose pods lead"]),
        ({"subGroups": [{"name": "A b", "pods": 1}]}, "subGroups[0].name", []),
        ({"subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}, *replicas(1, parent="a")]},
         "subGroups", ["inside itself"]),
    ],
)  # fmt: skip
def test_a_slip_is_a_sentence(more: dict[str, Any], field: str, parts: list[str]) -> None:
    check_refusal({"name": "serve", **more}, field, parts)
