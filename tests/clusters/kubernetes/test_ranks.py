"""Ranks on Kubernetes: written with the Binding, shown to containers by the webhook, and kept by who stays."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from kaiwo.clusters.kubernetes.cache.rank_annotations import (
    HOSTS_ANNOTATION,
    MAX_HOSTS,
    RANK_ANNOTATION,
    WORLD_ANNOTATION,
    rank_annotations,
)
from kaiwo.clusters.kubernetes.webhooks.rank_files import FOLDER, VOLUME, add_rank_files
from kaiwo.clusters.kubernetes.webhooks.workload_objects import read_workload_object
from tests.clusters.kubernetes.api_objects import cached_pod
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound
from tests.controlplane.plane import Plane
from tests.waiting import run

LEAF = "example.com/leaf"
LEAVES = {"a": "l1", "b": "l2", "c": "l1", "d": "l2"}  # by name, neighbours are on different leaves


def notes(pod: Json) -> dict[str, str]:
    return pod["metadata"].get("annotations", {})


def test_every_pod_of_a_gang_gets_its_rank_and_the_replacement_of_a_lost_one_takes_the_same(
    plane: Plane, tmp_path: Path
) -> None:
    asked = {"kaiwo.ai/gang": "train", "kaiwo.ai/gang-size": "5", "kaiwo.ai/preferred-level": LEAF}

    async def gang(kubectl: Kubectl, *names: str) -> list[Json]:
        for name in names:
            await kubectl.pod(name, gpus=8, annotations=asked, hostname=f"host-{name}", subdomain="train")
        return [await until_bound(kubectl, name) for name in names]

    async def test() -> None:
        async with scheduled(plane, tmp_path / "first") as kubectl:
            for name, leaf in LEAVES.items():
                await kubectl.node(name, labels={LEAF: leaf})
            await kubectl.pod("starter", gpus=0, annotations=asked)
            pods = await gang(kubectl, "w0", "w1", "w2", "w3")
            by_rank = {int(notes(pod)[RANK_ANNOTATION]): pod for pod in pods}
            assert sorted(by_rank) == [0, 1, 2, 3]
            leaves = [LEAVES[by_rank[rank]["spec"]["nodeName"]] for rank in range(4)]
            assert sum(one != other for one, other in pairwise(leaves)) == 1
            hosts = "".join(f"host-{by_rank[rank]['metadata']['name']}.train\n" for rank in range(4))
            starter = notes(await until_bound(kubectl, "starter"))
            assert RANK_ANNOTATION not in starter
            for found in (starter, *map(notes, pods)):
                assert (found[HOSTS_ANNOTATION], found[WORLD_ANNOTATION]) == (hosts, "4")
            lost = by_rank[2]["metadata"]["name"]
            await kubectl.delete(pod_path(lost))
            (again,) = await gang(kubectl, "w9")
            assert notes(again)[RANK_ANNOTATION] == "2"
            assert notes(again)[HOSTS_ANNOTATION] == hosts.replace(f"host-{lost}.", "host-w9.")

    run(test())


def test_a_scheduler_that_takes_over_knows_the_ranks(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        asked = {"kaiwo.ai/gang": "train", "kaiwo.ai/gang-size": "2", "kaiwo.ai/rank-order": "true"}
        async with scheduled(plane, tmp_path / "first") as kubectl:
            for name in ("a", "b"):
                await kubectl.node(name)
            for name in ("w0", "w1"):
                await kubectl.pod(name, gpus=8, annotations=asked)
            for name in ("w0", "w1"):
                await until_bound(kubectl, name)
            options = SchedulerOptions(
                str(tmp_path / "second"), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False
            )
            async with scheduling(options) as second:
                (pods,) = (each.values() for name, each in second.loop.state.pods.items() if "train" in name)
                assert sorted(pod.rank for pod in pods) == [0, 1]

    run(test())


def template(**notes: str) -> Json:
    containers = [{"name": "main"}, {"name": "side", "env": [{"name": "KAIWO_RANK", "value": "7"}], "volumeMounts": []}]
    return {"metadata": {"annotations": notes}, "spec": {"containers": containers, "volumes": [{"name": "data"}]}}


def patched(document: Json, kind: str = "Pod", group: str = "") -> list[dict[str, Any]]:
    work = read_workload_object(msgspec.json.encode(document), kind, group, "default")
    return list(add_rank_files(work))


def test_containers_of_a_pod_that_asks_see_its_rank_as_variables_and_files() -> None:
    steps = {step["path"]: step["value"] for step in patched(template(**{"kaiwo.ai/rank-order": "true"}))}
    volume = steps["/spec/volumes/-"]
    assert volume["name"] == VOLUME
    assert {item["path"]: item["fieldRef"]["fieldPath"] for item in volume["downwardAPI"]["items"]} == {
        "rank": "metadata.annotations['kaiwo.ai/rank']",
        "world-size": "metadata.annotations['kaiwo.ai/world-size']",
        "hosts": "metadata.annotations['kaiwo.ai/rank-hosts']",
    }
    assert [each["name"] for each in steps["/spec/containers/0/env"]] == ["KAIWO_RANK", "KAIWO_WORLD_SIZE"]
    assert steps["/spec/containers/0/volumeMounts"][0]["mountPath"] == FOLDER
    assert steps["/spec/containers/1/env/-"]["name"] == "KAIWO_WORLD_SIZE"  # it has a KAIWO_RANK of its own
    assert steps["/spec/containers/1/volumeMounts/-"]["name"] == VOLUME


def test_a_job_that_asks_has_it_in_its_template_and_its_pods_get_it_once() -> None:
    job = {"metadata": {"annotations": {"kaiwo.ai/rank-order": "true"}}, "spec": {"template": template()}}
    paths = [step["path"] for step in patched(job, "Job", "batch")]
    assert "/spec/template/spec/volumes/-" in paths
    made = template(**{"kaiwo.ai/rank-order": "true"})
    made["spec"]["volumes"].append({"name": VOLUME})
    assert patched(made) == []
    job["spec"]["template"]["metadata"]["annotations"]["kaiwo.ai/rank-order"] = "false"
    assert patched(job, "Job", "batch") == []


def test_a_pod_that_does_not_ask_is_left_as_it_is() -> None:
    assert patched(template()) == []
    assert patched(template(**{"kaiwo.ai/required-level": "leaf"})) == []


def test_in_a_large_gang_only_the_first_pod_and_launchers_get_all_hosts() -> None:
    hosts = {rank: f"h{rank}" for rank in range(MAX_HOSTS + 1)}
    assert [HOSTS_ANNOTATION in rank_annotations(rank, hosts) for rank in (-1, 0, 1)] == [True, True, False]
    assert rank_annotations(5, hosts) == {RANK_ANNOTATION: "5", WORLD_ANNOTATION: str(MAX_HOSTS + 1)}
    assert rank_annotations(-1, {}) == {}


def test_the_list_of_hosts_is_not_kept_in_memory() -> None:
    written = rank_annotations(0, {rank: f"host-{rank}.train" for rank in range(100)})
    pod = cached_pod("w0", annotations=written, hostname="x")
    assert RANK_ANNOTATION in pod.annotations
    assert HOSTS_ANNOTATION not in pod.annotations
    assert pod.host == "x"
