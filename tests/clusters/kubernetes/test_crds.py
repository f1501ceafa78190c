"""Our kinds on a real API server: what it takes, what it refuses and with which words."""

import json
from pathlib import Path

import pytest
import yaml

from kaiwo.manifests import parse
from kaiwo.model.errors import ConfigError
from tests.conftest import ROOT
from tests.controlplane.plane import Plane

CRDS = sorted((ROOT / "deploy" / "crds").glob("*.yaml"))
MAX_BYTES = 200_000


@pytest.fixture(scope="module")
def kinds(plane: Plane) -> Plane:
    """The server with our kinds."""
    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *[f"crd/{_name(path)}" for path in CRDS])
    return plane


def _name(path: Path) -> str:
    return yaml.safe_load(path.read_text())["metadata"]["name"]


def _apply(plane: Plane, document: dict[str, object]) -> str:
    """What the server answers, without keeping anything."""
    return plane.kubectl("apply", "--dry-run=server", "-f", "-", text=json.dumps(document), check=False)


def _queue(name: str = "q", **spec: object) -> dict[str, object]:
    return {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue", "metadata": {"name": name}, "spec": spec}


def _other(kind: str, spec: dict[str, object]) -> dict[str, object]:
    group = "infrastructure.silogen.ai/v1alpha1" if kind == "PartitioningPlan" else "kaiwo.ai/v1alpha2"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_a_definition_is_small_and_complete(path: Path) -> None:
    assert path.stat().st_size < MAX_BYTES
    for version in yaml.safe_load(path.read_text())["spec"]["versions"]:
        assert version["subresources"] == {"status": {}}
        assert version["additionalPrinterColumns"]
        assert version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


def test_the_server_finds_nothing_wrong_with_the_definitions(kinds: Plane) -> None:
    for path in CRDS:
        found = yaml.safe_load(kinds.kubectl("get", "crd", _name(path), "-o", "yaml"))
        conditions = {item["type"]: item["status"] for item in found["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert "NonStructuralSchema" not in conditions


FULL_QUEUE = {
    "displayName": "Robotics",
    "parentQueue": "lab",
    "priority": 200,
    "maxPriority": 50,
    "resources": {
        "gpu": {
            "quota": "15.5",
            "limit": 48,
            "overQuotaWeight": 2,
            "models": {"MI300X": {"quota": 8, "limit": -1}, "H100": {"limit": "4"}},
        },
        "cpu": {"quota": "512", "limit": "-1"},
        "memory": {"quota": "4Ti", "limit": "8Ti"},
    },
    "fairness": {"policy": "DRF", "reclaimStrategy": "conservative", "minRuntime": "10m"},
    "namespaces": ["robots"],
    "users": ["ada@example.com"],
    "shareWith": ["queue", "user"],
    "maxThreads": 60,
    "defaultThreads": 30,
    "maxShareMemory": "16Gi",
}


def test_a_queue_with_every_field_is_taken_here_and_there(kinds: Plane) -> None:
    document = _queue(**FULL_QUEUE)
    assert "created (server dry run)" in _apply(kinds, document)
    assert parse(document).queues[0].gpu.quota == 15_500
    assert parse(document).queues[0].max_priority == 50
    assert parse(document).queues[0].max_share_mib == 16 << 10


def test_every_name_that_a_queue_can_have_can_be_a_parents(kinds: Plane) -> None:
    for name in ("a.b", "a-1.b-2.c", "x"):
        assert "created (server dry run)" in _apply(kinds, _queue(name))
        assert "created (server dry run)" in _apply(kinds, _queue("child", parentQueue=name))


@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("q", {"parentQueue": "a..b"}, "should match"),
        ("q", {"parentQueue": "q"}, "its own parent"),
        ("q", {"parentQueue": "default"}, "no queue can be below it"),
        ("q", {"resources": {"gpu": {"quota": 8, "limit": "7.5"}}}, "limit is below quota"),
        ("q", {"resources": {"memory": {"quota": "4Ti", "limit": "4T"}}}, "limit is below quota"),
        ("q", {"resources": {"gpu": {"models": {"MI300X": {"quota": 8, "limit": 7}}}}}, "limit is below quota"),
        ("q", {"resources": {"gpu": {"quota": -2}}}, "0 or more"),
        ("q", {"resources": {"gpu": {"quota": "many"}}}, "0 or more"),
        ("q", {"resources": {"gpu": {"limit": -2}}}, "-1 for no limit"),
        ("q", {"resources": {"gpu": {"overQuotaWeight": -1}}}, "greater than or equal to 0"),
        ("q", {"resources": {"gpu": {"qouta": 8}}}, "unknown field"),
        ("q", {"resources": {"gpu": {"limit": "4.0005"}}}, "steps of 0.001"),
        ("q", {"resources": {"gpu": {"quota": "0.0001"}}}, "steps of 0.001"),
        ("q", {"resources": {"gpu": {"models": {"MI300X": {"limit": "1.5m"}}}}}, "steps of 0.001"),
        ("q", {"resources": {"gpu": {"quota": "1e30"}}}, "the maximum is 1,000,000 GPUs"),
        ("q", {"resources": {"gpu": {"limit": "100Pi"}}}, "the maximum is 1,000,000 GPUs"),
        ("q", {"resources": {"cpu": {"quota": "100Pi"}}}, "the maximum is 2,000,000 cores"),
        ("q", {"resources": {"memory": {"limit": "2Ei"}}}, "the maximum is 1,024Pi"),
        ("q", {"fairness": {"minRuntime": "999999999999999999999h"}}, "the maximum is ten years"),
        ("q", {"fairness": {"minRuntime": 999999999999}}, "the maximum is ten years"),
        ("q", {"fairness": {"policy": "Fair"}}, "supported values"),
        ("q", {"fairness": {"minRuntime": "soon"}}, "a time such as"),
        ("q", {"priority": 2_000_000_000}, "less than or equal to"),
        ("q", {"maxPriority": 2_000_000_000}, "less than or equal to"),
        ("q", {"maxThreads": 0}, "greater than or equal to 1"),
        ("q", {"maxThreads": 101}, "less than or equal to 100"),
        ("q", {"defaultThreads": 0}, "greater than or equal to 1"),
        ("q", {"defaultThreads": 101}, "less than or equal to 100"),
        ("q", {"maxShareMemory": 0}, "an amount of memory above 0"),
        ("q", {"maxShareMemory": "much"}, "an amount of memory above 0"),
        ("q", {"maxShareMemory": "-1Gi"}, "an amount of memory above 0"),
        ("q", {"maxShareMemory": "2Ti"}, "the maximum is 1Ti"),
        ("q", {"maxShareMemory": 1048577}, "the maximum is 1Ti"),
        ("q", {"shareWith": ["team"]}, "supported values"),
        ("q", {"shareWith": ["nobody", "user"]}, "anyone and nobody stand alone"),
        ("q", {"displayName": "x" * 254}, "may not be more than 253"),
    ],
)
def test_a_queue_that_means_nothing_is_refused_by_the_server_and_by_us(
    kinds: Plane, name: str, spec: dict[str, object], words: str
) -> None:
    document = _queue(name, **spec)
    assert words in _apply(kinds, document)
    if spec != {"parentQueue": "default"}:  # that needs the other queues: the whole set is checked elsewhere
        with pytest.raises(ConfigError):
            parse(document)


def test_the_examples_of_queues_are_taken(kinds: Plane) -> None:
    for document in yaml.safe_load_all((ROOT / "examples" / "queue.yaml").read_text()):
        assert "created (server dry run)" in _apply(kinds, document)


GOOD = [
    ("KaiwoReservation", {"gpus": 8, "owner": {"queue": "lab"}, "start": "2026-01-01T00:00:00Z"}),
    ("KaiwoReservation", {"gpus": 8, "gpuModels": ["MI300X"], "nodeSelector": {"rack": "7"}}),
    ("KaiwoReservation", {"gpus": 8, "nodeSelector": {"example.com/rack.a": "7_b", "empty": ""}}),
    ("KaiwoReservation", {"nodes": ["a", "b"], "owner": {"user": "ada"}, "atEnd": "evict"}),
    ("KaiwoReservation", {"devices": [{"node": "a", "gpu": "gpu-0"}], "owner": {"workload": "default/train"}}),
    ("KaiwoTopology", {"levels": [{"name": "spine", "nodeLabel": "a"}, {"name": "leaf", "nodeLabel": "b"}]}),
    (
        "KaiwoTopology",
        {"levels": [{"name": "leaf"}], "domains": [{"name": "rail-1", "level": "leaf", "nodes": ["a", "b"]}]},
    ),
    ("PartitioningPlan", {"rules": [{"selector": {"matchLabels": {"a": "b"}}, "profile": {"computeMode": "CPX"}}]}),
]
BAD = [
    ("KaiwoReservation", {"gpus": 0}, "greater than or equal to 1"),
    ("KaiwoReservation", {"owner": {"queue": "lab"}}, "exactly one of gpus"),
    ("KaiwoReservation", {"gpus": 1, "nodes": ["a"]}, "exactly one of gpus"),
    ("KaiwoReservation", {"nodes": ["a"], "gpuModels": ["MI300X"]}, "go with gpus"),
    ("KaiwoReservation", {"gpus": 1, "atEnd": "stop"}, "Unsupported value"),
    ("KaiwoReservation", {"gpus": 1, "owner": {"queue": "lab", "user": "ada"}}, "exactly one"),
    ("KaiwoReservation", {"gpus": 1, "owner": {}}, "exactly one"),
    (
        "KaiwoReservation",
        {"gpus": 1, "start": "2026-02-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"},
        "end is not after start",
    ),
    ("KaiwoReservation", {"gpus": 1, "nodeSelector": {"a b": "c"}}, "a key that no label can have"),
    ("KaiwoReservation", {"gpus": 1, "nodeSelector": {"a": "b c"}}, "a value that no label can have"),
    ("KaiwoReservation", {"gpus": 1, "owner": {"workload": "foo"}}, "must be namespace/name"),
    ("KaiwoTopology", {"levels": []}, "at least 1"),
    ("KaiwoTopology", {"levels": [{"name": "leaf"}]}, "needs the nodeLabel"),
    ("KaiwoTopology", {"levels": [{"name": "a"}, {"name": "a"}], "domains": []}, "Duplicate"),
    ("KaiwoTopology", {"levels": [{"name": "a"}], "domains": [{"name": "d", "level": "b"}]}, "not in levels"),
    ("PartitioningPlan", {"rules": []}, "at least 1"),
    ("PartitioningPlan", {"rules": [{"selector": {}, "profile": {"computeMode": "CPX"}}]}, "every node of the cluster"),
    ("PartitioningPlan", {"rules": [{"selector": {"matchLabels": {"a": "b"}}, "profile": {}}]}, "name a profile"),
    (
        "PartitioningPlan",
        {
            "rules": [{"selector": {"matchLabels": {"a": "b"}}, "profile": {"computeMode": "CPX"}}],
            "rollout": {"maxParallel": 3, "maxUnavailable": 2},
        },
        "above maxUnavailable",
    ),
]


@pytest.mark.parametrize(("kind", "spec"), GOOD)
def test_what_makes_sense_is_taken(kinds: Plane, kind: str, spec: dict[str, object]) -> None:
    assert "created (server dry run)" in _apply(kinds, _other(kind, spec))


@pytest.mark.parametrize(("kind", "spec", "words"), BAD)
def test_what_makes_no_sense_is_refused(kinds: Plane, kind: str, spec: dict[str, object], words: str) -> None:
    assert words in _apply(kinds, _other(kind, spec))


def test_the_plans_of_upstream_are_taken(kinds: Plane, shared_dir: Path) -> None:
    found = [
        document
        for path in sorted((shared_dir / "cases" / "kaiwo").rglob("partitioning-plan*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]
    assert found
    for document in found:
        assert "created (server dry run)" in _apply(kinds, document)


def test_status_is_written_beside_the_spec(kinds: Plane) -> None:
    kinds.kubectl("apply", "-f", "-", text=yaml.safe_dump(_queue("counted")))
    status = '{"status": {"used": {"gpu": "3.5"}, "running": 2, "waiting": 1}, "spec": {"priority": 7}}'
    kinds.kubectl("patch", "kaiwoqueue", "counted", "--subresource=status", "--type=merge", "-p", status)
    assert kinds.kubectl("get", "kq", "counted", "--no-headers").split()[:5] == ["counted", "100", "3.5", "2", "1"]
    kinds.kubectl("delete", "kq", "counted")
