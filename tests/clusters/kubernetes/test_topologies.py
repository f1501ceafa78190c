"""What `kubectl get kaiwotopologies` shows: the domains that the nodes make, and who has no place in them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import TOPOLOGIES, TopologyObject, read_topology_object
from kaiwo.clusters.kubernetes.decode.wire_objects import Meta
from kaiwo.clusters.kubernetes.writers.topology_status_writer import TopologyStatusWriter, find_coverage, status_fields
from kaiwo.model.events import Event, TopologyChanged, TopologyGone
from kaiwo.model.network.topology import DomainAccess, Topology
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl
from tests.clusters.kubernetes.running_scheduler import scheduled
from tests.conftest import ROOT
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

SPINE, LEAF = "example.com/spine", "example.com/leaf"
BY_LABELS: Json = {"levels": [{"name": "spine", "nodeLabel": SPINE}, {"name": "leaf", "nodeLabel": LEAF}]}
NODES = {
    "a": {SPINE: "s1", LEAF: "l1"},
    "b": {SPINE: "s1", LEAF: "l2"},
    "c": {SPINE: "s2", LEAF: "l3"},
    "d": {SPINE: "s2"},
}
NOW = "2030-01-01T00:00:00Z"


def read(document: Json) -> Topology | str:
    return read_topology_object(TopologyObject(Meta(name="fabric"), document))


def spec(document: Json) -> Topology:
    topology = read(document)
    assert not isinstance(topology, str)
    return topology


def test_access_rules_are_read() -> None:
    rules = [{"domains": ["l1", "l1"], "queues": ["lab"]}, {"domains": ["l2"], "namespaces": []}]
    found = spec({**BY_LABELS, "access": rules}).access
    assert found == (DomainAccess(("l1",), ("lab",)), DomainAccess(("l2",)))


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"domains": ["l1"]}, "access[0].queues is missing, and so is namespaces"),
        ({"queues": ["lab"]}, "access[0].domains names no domain"),
        ({"domains": ["l1"], "queue": ["lab"]}, "queue"),
    ],
)
def test_a_rule_that_says_too_little_is_refused(rule: Json, told: str) -> None:
    """A rule that is read wrongly would leave a domain open, or close it."""
    found = read({**BY_LABELS, "access": [rule]})
    assert isinstance(found, str)
    assert told in found


def test_a_rule_about_a_domain_that_is_not_written_is_refused() -> None:
    written = {"levels": [{"name": "leaf"}], "domains": [{"name": "l1", "level": "leaf", "nodes": ["a"]}]}
    found = read({**written, "access": [{"domains": ["l7"], "queues": []}]})
    assert isinstance(found, str)
    assert "access names the domain l7, which is not in it" in found


def test_levels_are_read_from_labels() -> None:
    coverage = find_coverage(spec(BY_LABELS), NODES)
    assert [(level.name, level.domains, level.nodes) for level in coverage.levels] == [("spine", 2, 4), ("leaf", 3, 3)]
    assert (coverage.nodes, coverage.outside, coverage.problem) == (3, ("d",), "")
    status = status_fields(coverage, 4, {}, NOW)
    assert (status["domains"], status["nodes"], status["nodesWithoutPlace"], status["observedGeneration"]) == (
        5,
        3,
        1,
        4,
    )
    assert status["message"] == (
        f"1 of 4 nodes are in no domain of leaf: they lack the label {LEAF}; not in the topology: d"
    )
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [
        ("Ready", "True"),
        ("Complete", "False"),
    ]


def test_written_domains_reach_up_to_their_parents_and_may_name_nodes_that_are_gone() -> None:
    written = {
        "levels": [{"name": "spine"}, {"name": "rail"}],
        "domains": [
            {"name": "s", "level": "spine"},
            {"name": "r1", "level": "rail", "parents": ["s"], "nodes": ["a", "b"]},
            {"name": "r2", "level": "rail", "parents": ["s"], "nodes": ["a", "b", "ghost"]},
        ],
    }
    coverage = find_coverage(spec(written), NODES)
    assert [(level.name, level.domains, level.nodes) for level in coverage.levels] == [("spine", 1, 2), ("rail", 2, 2)]
    assert (coverage.nodes, coverage.outside, coverage.unknown) == (2, ("c", "d"), ("ghost",))
    assert "named, but not in the cluster: ghost" in status_fields(coverage, 1, {}, NOW)["message"]


@pytest.mark.parametrize(
    ("domains", "words"),
    [
        ([{"name": "l", "level": "leaf", "parents": ["nobody"]}], "domain l names the parent nobody, which is not in"),
        (
            [{"name": "l", "level": "leaf", "parents": ["m"]}, {"name": "m", "level": "leaf", "parents": ["l"]}],
            "domain l of level leaf names the parent m of level leaf, which is not wider",
        ),
        (
            [
                {"name": "l", "level": "leaf", "nodes": ["a", "b", "c"]},
                {"name": "m", "level": "leaf", "nodes": ["c", "d", "e"]},
            ],
            "node c is in both l and m, which share too few nodes to be two rails of the same nodes",
        ),
        (
            [
                {"name": "l", "level": "leaf", "nodes": ["a", "b"]},
                {"name": "m", "level": "leaf", "nodes": ["a", "c"]},
            ],
            "node a is in both l and m, which share too few nodes to be two rails of the same nodes",
        ),
        (
            [
                {"name": "s1", "level": "spine"},
                {"name": "s2", "level": "spine", "nodes": ["a"]},
                {"name": "l1", "level": "leaf", "parents": ["s1"], "nodes": ["a", "b"]},
            ],
            "node a is in spine s2, and also in l1, which is in s1; remove it from one of them",
        ),
        (
            [
                {"name": "s1", "level": "spine"},
                {"name": "l1", "level": "leaf", "parents": ["s1"], "nodes": ["a"]},
                {"name": "l2", "level": "leaf", "nodes": ["b"]},
            ],
            "domain l2 of level leaf names no parent, as l1 does; name the spine that it is in, or write one for it",
        ),
        (
            [
                {"name": "s1", "level": "spine"},
                {"name": "s2", "level": "spine"},
                {"name": "l1", "level": "leaf", "parents": ["s1"], "nodes": ["a"]},
                {"name": "l2", "level": "leaf", "parents": ["s1", "s2"], "nodes": ["b"]},
                {"name": "l3", "level": "leaf", "parents": ["s2"], "nodes": ["c"]},
            ],
            "l2 is below both s1 and s2, so they count as one spine, but l1 and l3 below them have no spine in common",
        ),
    ],
)
def test_a_mistake_is_said(domains: list[Json], words: str) -> None:
    written = {"levels": [{"name": "spine"}, {"name": "leaf"}], "domains": domains}
    problem = read(written)
    assert isinstance(problem, str)
    assert problem.startswith(f"KaiwoTopology 'fabric': {words}")
    coverage = find_coverage(spec(BY_LABELS), NODES)._replace(problem=problem)  # the version before stays in force
    status = status_fields(coverage, 1, {}, NOW)
    assert status["message"] == problem
    assert status["domains"] == 5
    assert (status["conditions"][0]["status"], status["conditions"][0]["reason"]) == ("False", "Mistake")


def test_a_topology_reaches_the_scheduler_and_a_mistake_leaves_the_last_one_in_force() -> None:
    cache, told = ClusterCache("kaiwo-scheduler"), []
    client: Any = None  # nothing is written before `start`
    writer = TopologyStatusWriter(client, cache, lambda event, **facts: told.append((event, facts["topology"])))

    def put(document: Json) -> list[Event]:
        writer.upsert(TopologyObject(Meta(name="fabric"), document))
        return list(cache.flush())

    topology = spec(BY_LABELS)
    assert put(BY_LABELS) == [TopologyChanged(topology)]
    assert put(BY_LABELS) == []
    wrong = {"levels": [{"name": "leaf"}], "domains": [{"name": "a", "level": "rack"}]}
    assert put(wrong) == []
    assert put(wrong) == []
    assert told == [("topology-unreadable", "fabric")]
    assert TopologyChanged(topology) in cache.whole_state()
    writer.delete(TopologyObject(Meta(name="fabric"), BY_LABELS))
    assert list(cache.flush()) == [TopologyGone("fabric")]
    assert TopologyChanged(topology) not in cache.whole_state()


def test_a_topology_has_the_rates_of_its_links() -> None:
    written = {
        "levels": [{"name": "spine"}, {"name": "leaf", "uplinkGbps": 400, "uplinks": 4}],
        "nodePortGbps": 400,
        "domains": [
            {"name": "s1", "level": "spine"},
            {"name": "s2", "level": "spine"},
            {"name": "l", "level": "leaf", "parents": ["s1", "s2"], "nodes": ["a"], "uplinkGbps": 800, "uplinks": 3},
        ],
    }
    topology = spec(written)
    assert [(link.lower, link.upper, link.mb_s, link.count) for link in topology.links] == [
        ("l", "s1", 100_000, 2),
        ("l", "s2", 100_000, 1),
    ]
    assert (topology.node_port_mb_s, topology.node_ports) == (50_000, 1)
    assert (topology.levels[1].uplink_mb_s, topology.levels[1].uplinks) == (50_000, 4)


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    first = status_fields(find_coverage(spec(BY_LABELS), NODES), 1, {}, "2020-01-01T00:00:00Z")
    again = status_fields(find_coverage(spec(BY_LABELS), {**NODES, "e": {}}), 1, first, NOW)
    assert [each["lastTransitionTime"] for each in again["conditions"]] == ["2020-01-01T00:00:00Z"] * 2
    whole = status_fields(find_coverage(spec(BY_LABELS), {"a": NODES["a"]}), 1, again, NOW)
    assert [each["lastTransitionTime"] for each in whole["conditions"]] == ["2020-01-01T00:00:00Z", NOW]


def test_a_topology_shows_the_nodes_that_are_there_and_is_seldom_written(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwotopologies.kaiwo.ai")
    monkeypatch.setattr("kaiwo.clusters.kubernetes.writers.coalescing_writer.REVIEW_S", 0.1)

    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            for name, labels in NODES.items():
                await kubectl.node(name, labels=labels)
            await kubectl.create(TOPOLOGIES, {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoTopology",
                                        "metadata": {"name": "fabric"}, "spec": BY_LABELS})  # fmt: skip
            try:
                found = await until(kubectl, lambda status: status.get("nodes") == 3)
                assert (found["status"]["domains"], found["status"]["nodesWithoutPlace"]) == (5, 1)
                row = plane.kubectl("get", "ktopo", "fabric", "--no-headers").split()
                assert row[2:6] == ["5", "3", "1", "True"]
                version = found["metadata"]["resourceVersion"]
                await kubectl.patch("/api/v1/nodes/a", {"metadata": {"annotations": {"of-no": "importance"}}})
                await asyncio.sleep(1)  # ten chances to write
                assert (await kubectl.get(f"{TOPOLOGIES}/fabric"))["metadata"]["resourceVersion"] == version
                await kubectl.patch("/api/v1/nodes/d", {"metadata": {"labels": {LEAF: "l3"}}})
                found = await until(kubectl, lambda status: status.get("nodes") == 4)
                assert [each["status"] for each in found["status"]["conditions"]] == ["True", "True"]
                await kubectl.patch(f"{TOPOLOGIES}/fabric", {"spec": {"levels": BY_LABELS["levels"][:1]}})
                found = await until(kubectl, lambda status: status.get("domains") == 2)
                assert found["status"]["observedGeneration"] == 2
                await kubectl.delete("/api/v1/nodes/d")
                await until(kubectl, lambda status: status.get("nodes") == 3)
            finally:
                await kubectl.delete(f"{TOPOLOGIES}/fabric")

    run(test())


async def until(kubectl: Kubectl, holds: Any) -> Json:
    for _ in range(int(PATIENCE_S / 0.05)):
        found = await kubectl.get(f"{TOPOLOGIES}/fabric")
        if holds(found.get("status", {})):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"the topology shows {found.get('status')}")
