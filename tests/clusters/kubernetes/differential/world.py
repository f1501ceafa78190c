"""A generated cluster: nodes with labels, taints and sizes of all kinds, and pods that are there already.

In:    a seed.   Out: objects for an API server; the same seed, the same objects.
"""

from random import Random
from typing import Any, NamedTuple

from tests.clusters.kubernetes.differential import rules
from tests.clusters.kubernetes.differential.twins import twins

Json = dict[str, Any]

LARGEST = 40  # kube-scheduler looks at all nodes of a cluster this small
SCHEDULERS = ("default-scheduler", "kaiwo-scheduler")
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class World(NamedTuple):
    """Everything but the pods that are to be placed."""

    nodes: list[Json]
    namespaces: list[Json]
    volumes: list[Json]
    claims: list[Json]
    there: list[Json]  # pods with a node
    leaving: set[str]  # of those: the names that were told to go
    ended: set[str]  # and those that are over
    resized: dict[str, Json]  # the status of those whose size changes


class Maker:
    """Draws one world, and pods for it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.tag = f"w{seed}"
        self.spaces = [f"{self.tag}-{name}" for name in ("one", "two", "three")]
        self.node_names = [f"{self.tag}-n{number:02d}" for number in range(self.random.randint(8, LARGEST))]
        self.claims: list[Json] = []
        self.volumes: list[Json] = []
        self._space_labels: dict[str, dict[str, str]] = {}

    def world(self) -> World:
        nodes = [self._node(name) for name in self.node_names]
        self._space_labels = {name: self._some({"team": ("red", "blue"), "stage": ("prod",)}) for name in self.spaces}
        spaces = [{"metadata": {"name": name, "labels": labels}} for name, labels in self._space_labels.items()]
        for number in range(6):
            self._volume(f"{self.tag}-v{number}", self.random.choice(self.spaces))
        there = [self._there(f"there-{number}") for number in range(self.random.randint(20, 3 * len(nodes)))]
        bound = [pod["metadata"]["name"] for pod in there]
        leaving = {name for name in bound if self.random.random() < 0.1}
        ended = {name for name in bound if name not in leaving and self.random.random() < 0.05}
        others = [pod for pod in there if pod["metadata"]["name"] not in ended]
        resized = {
            pod["metadata"]["name"]: rules.resize(self.random, pod) for pod in others if self.random.random() < 0.2
        }
        return World(nodes, spaces, self.volumes, self.claims, there, leaving, ended, resized)

    def pods(self, count: int) -> list[Json]:
        """To be placed."""
        found = [self._pod(f"case-{number:03d}") for number in range(count)]
        return found + [twin for pod in found for twin in twins(pod, self._space_labels)]

    def _node(self, name: str) -> Json:
        draw = self.random
        labels = {"kubernetes.io/hostname": name} if draw.random() < 0.95 else {}
        labels |= self._some(
            {
                "topology.kubernetes.io/zone": ("a", "b", "c"),
                "topology.kubernetes.io/region": ("r",),
                "rack": ("1", "2", "3", "4", "5"),
                "disk": ("ssd", "hdd"),
                "gen": ("1", "5", "9", "12", "new", "1_0", "99999999999999999999"),
            },
            0.85,
        )
        taints = [
            {"key": key, "value": draw.choice(("", "x", "y")), "effect": effect}
            for key, effect in (
                ("dedicated", "NoSchedule"),
                ("old", "PreferNoSchedule"),
                ("drain", "NoExecute"),
                ("dedicated", "NoExecute"),
            )
            if draw.random() < 0.08
        ]
        condition = "True"
        if draw.random() < 0.08:
            condition = draw.choice(("False", "Unknown"))
            taints.append({"key": NOT_READY if condition == "False" else UNREACHABLE, "effect": "NoSchedule"})
        spec: Json = {"taints": taints}
        if draw.random() < 0.08:
            spec["unschedulable"] = True
            if draw.random() < 0.7:  # the taint comes a moment later
                taints.append({"key": UNSCHEDULABLE, "effect": "NoSchedule"})
        amounts = {"cpu": draw.choice(("2", "4", "7500m")), "memory": draw.choice(("4Gi", "8Gi", "9000000Ki"))}
        amounts |= {"pods": str(draw.choice((3, 6, 110))), "ephemeral-storage": draw.choice(("5Gi", "50Gi"))}
        if draw.random() < 0.05:
            del amounts["pods"]
        amounts |= self._some({"example.com/widget": ("1", "3"), "amd.com/gpu": ("2", "8"), "hugepages-2Mi": ("64Mi",)})
        conditions = [{"type": "Ready", "status": condition, "reason": "Told"}]
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions},
        }

    def _there(self, name: str) -> Json:
        """A pod on a node. What its own rules say of that node does not matter any more."""
        pod = rules.plain_pod(self.random, name, self.random.choice(self.spaces), self.random.choice(SCHEDULERS))
        pod["spec"]["nodeName"] = self.random.choice(self.node_names)
        rules.small(self.random, pod)
        for likelihood, rule in ((0.05, rules.apart), (0.05, rules.near), (0.05, rules.spread), (0.25, rules.ports)):
            if self.random.random() < likelihood:
                rule(self.random, pod, self.spaces)
        if self.random.random() < 0.05:
            self._use_a_claim(pod)
        return pod

    def _pod(self, name: str) -> Json:
        space = self.random.choice(self.spaces)
        pod = rules.plain_pod(self.random, name, space, "kaiwo-scheduler")
        rules.small(self.random, pod)
        likely = (*sorted(rules.BY_NAME), *rules.LIKELY)
        chosen = sorted({self.random.choice(likely) for _ in range(self.random.choice((1, 1, 2, 2, 3)))})
        for each in chosen:
            rules.BY_NAME[each](self.random, pod, self.spaces)
        if self.random.random() < 0.15:
            self._use_a_claim(pod)
            chosen.append("volume")
        if "node affinity" in chosen:
            rules.name_a_node(self.random, pod, self.node_names)
        pod["metadata"]["annotations"] = {"rules": ", ".join(sorted(chosen))}
        return pod

    def _use_a_claim(self, pod: Json) -> None:
        names = [item["metadata"]["name"] for item in self.claims]
        name = "missing" if self.random.random() < 0.1 else self.random.choice(names)
        pod["metadata"]["namespace"] = next(
            (item["metadata"]["namespace"] for item in self.claims if item["metadata"]["name"] == name), self.spaces[0]
        )
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]

    def _volume(self, name: str, space: str) -> None:
        draw = self.random
        terms = [{"matchExpressions": [rules.expression(draw, is_for_volume=True)]} for _ in range(draw.choice((1, 3)))]
        modes = [draw.choice(("ReadWriteMany", "ReadWriteMany", "ReadWriteOncePod"))]
        spec: Json = {
            "capacity": {"storage": "1Gi"},
            "accessModes": modes,
            "hostPath": {"path": "/data"},
            "storageClassName": "",
        }
        if draw.random() < 0.6:
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        labels = {}
        if draw.random() < 0.4:
            key = draw.choice(("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"))
            labels[key] = draw.choice(("a", "a__b", "b__c", "c"))
        self.volumes.append({"metadata": {"name": name, "labels": labels}, "spec": spec})
        claim = {
            "metadata": {
                "name": name,
                "namespace": space,
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {
                "accessModes": modes,
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": name,
                "storageClassName": "",
            },
            "status": {"phase": "Bound"},
        }
        self.claims.append(claim)

    def _some(self, choices: dict[str, tuple[str, ...]], likelihood: float = 0.6) -> dict[str, str]:
        return {key: self.random.choice(values) for key, values in choices.items() if self.random.random() < likelihood}
