"""A hostile tenant makes the scheduler work: the pod of another tenant is bound as fast as before, within a second.

The numbers are those of the table in docs/security.md. The flood comes from a process of its own; the scheduler runs in
the test.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from sys import executable
from typing import Any

import msgspec
import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import SCHEDULER
from kaiwo.clusters.kubernetes.client import ApiError
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl
from tests.clusters.kubernetes.running_scheduler import scheduled
from tests.conftest import ROOT
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, is_in_time, run

HOME = "t-flood"
PODS = f"/api/v1/namespaces/{HOME}/pods"
DELAY_S = 1.0  # by which no attempt may delay others
LATE = 3  # pods of the other tenant, one after another, while the flood goes on
NOWHERE = {"nodeSelector": {"example.com/none": "none"}}


def pod(name: str, gpus: int = 1, cpu: str = "1", spec: Json = NOWHERE, **metadata: Any) -> Json:
    amounts = {"cpu": cpu, "amd.com/gpu": str(gpus)}
    container = {"name": "main", "image": "work", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "path": PODS,
        "body": {
            "metadata": {"name": name, **metadata},
            "spec": {"schedulerName": SCHEDULER, "containers": [container], **spec},
        },
    }


def gated() -> Iterator[Json]:
    spec = {"schedulingGates": [{"name": "example.com/never"}]}
    return (pod(f"gated-{number}", spec=spec) for number in range(2000))


def gangs_that_never_complete() -> Iterator[Json]:
    for number in range(500):
        yield pod(f"part-{number}", annotations={"kaiwo.ai/gang": f"g-{number}", "kaiwo.ai/gang-size": "100"})


def requests_of_their_own() -> Iterator[Json]:
    """Each is a class of its own, and none of them fits."""
    return (pod(f"odd-{number}", gpus=8, cpu=f"{100_000 + number}m", spec={}) for number in range(1000))


def node_affinity_with_many_terms() -> Iterator[Json]:
    for number in range(100):
        terms = [
            {"matchExpressions": [{"key": f"example.com/k{term}", "operator": "In", "values": [f"v{number}", "x"]}]}
            for term in range(100)
        ]
        required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        yield pod(f"terms-{number}", spec={"affinity": required, **NOWHERE})


def pod_affinity_with_many_terms() -> Iterator[Json]:
    """Each selects every pod of every namespace, in words of its own."""
    for number in range(200):
        terms = [
            {
                "labelSelector": {"matchExpressions": [{"key": f"k{number}-{term}", "operator": "DoesNotExist"}]},
                "topologyKey": f"example.com/level-{number}-{term}",
                "namespaceSelector": {},
            }
            for term in range(30)
        ]
        anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        yield pod(f"apart-{number}", spec={"affinity": anti, **NOWHERE})


def spread_over_many_levels() -> Iterator[Json]:
    for number in range(100):
        spread = [
            {
                "maxSkew": 1,
                "topologyKey": f"example.com/level-{number}-{level}",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "a"}},
            }
            for level in range(30)
        ]
        yield pod(f"spread-{number}", labels={"app": "a"}, spec={"topologySpreadConstraints": spread, **NOWHERE})


def a_selector_and_labels_of_its_own_for_each() -> Iterator[Json]:
    for number in range(1000):
        term = {
            "labelSelector": {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]},
            "topologyKey": "kubernetes.io/hostname",
        }
        anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        yield pod(f"own-{number}", labels={"app": f"a{number}"}, spec={"affinity": anti, **NOWHERE})


def many_tolerations() -> Iterator[Json]:
    for number in range(100):
        tolerations = [{"key": f"example.com/t{number}-{each}", "operator": "Exists"} for each in range(100)]
        yield pod(f"tolerant-{number}", spec={"tolerations": tolerations, **NOWHERE})


def names_that_collide() -> Iterator[Json]:
    """Gangs, pods and owners with the same names, and with those of the other tenant."""
    for number in range(200):
        yield pod(f"same-{number}", annotations={"kaiwo.ai/gang": f"same-{number + 1}", "kaiwo.ai/gang-size": "2"})
    for name in ("default", "late-0", "default.late-0", "late-0-main-0"):
        yield pod(name, annotations={"kaiwo.ai/gang": "default/late-0"})


def owners_in_loops() -> Iterator[Json]:
    uids = [f"0d1c0000-0000-4000-8000-{number:012d}" for number in range(300)]
    for number, _ in enumerate(uids):
        after = (number + 1) % len(uids)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": f"loop-{after}", "uid": uids[after], "controller": True}
        yield pod(f"loop-{number}", ownerReferences=[owner])


def storm(key: str, value: str, **spec: Any) -> Iterator[Json]:
    yield pod("stormy", **spec)
    yield {"patch": f"{PODS}/stormy", "body": {"metadata": {"annotations": {key: value}}}}


def levels_of_their_own() -> Iterator[Json]:
    """Each asks for a level that no topology has, and so has a shape of its own."""
    for number in range(1000):
        yield pod(f"level-{number}", spec={}, annotations={"kaiwo.ai/required-level": f"example.com/level-{number}"})


def gangs_that_ask_for_ranks_levels_and_bandwidth() -> Iterator[Json]:
    """Each has room on no node, and must be tried on every level."""
    for gang in range(100):
        for member in range(10):
            asked = {
                "gang": f"ranked-{gang}", "gang-size": "10", "rank-order": "true", "bandwidth": f"{gang + 1}GB/s",
                "preferred-level": "kubernetes.io/hostname", "segment-size": "2",
                "segment-level": "kubernetes.io/hostname", "placement-strategy": "balanced",
            }  # fmt: skip
            notes = {f"kaiwo.ai/{key}": text for key, text in asked.items()}
            yield pod(f"ranked-{gang}-{member}", gpus=8, cpu="100", spec={}, annotations=notes)


def a_bandwidth_of_its_own_for_each() -> Iterator[Json]:
    for number in range(1000):
        notes = {"kaiwo.ai/bandwidth": f"{number + 1}MB/s", "kaiwo.ai/reservation": f"none-{number}"}
        yield pod(f"wide-{number}", spec={}, annotations=notes)


def names_for_run_times() -> Iterator[Json]:
    """What similar work took is remembered by image and name: each is like no other."""
    for number in range(1000):
        yield pod(f"{'x' * 40}-{number:04d}-22222-22222", spec={}, cpu="100", annotations={"kaiwo.ai/estimate": "1h"})


def claims_that_do_not_exist() -> Iterator[Json]:
    """Of devices and of volumes."""
    for number in range(300):
        spec = {
            "resourceClaims": [{"name": f"c{each}", "resourceClaimName": f"none-{number}-{each}"} for each in range(8)],
            "volumes": [
                {"name": f"v{each}", "persistentVolumeClaim": {"claimName": f"none-{number}-{each}"}}
                for each in range(20)
            ],
        }
        yield pod(f"claims-{number}", spec=spec)


FLOODS = {
    49: gated,
    50: gangs_that_never_complete,
    51: requests_of_their_own,
    52: node_affinity_with_many_terms,
    53: pod_affinity_with_many_terms,
    54: spread_over_many_levels,
    55: many_tolerations,
    56: names_that_collide,
    57: owners_in_loops,
    58: lambda: storm("example.com/note", "$N"),
    59: lambda: storm("kaiwo.ai/priority", "$N"),
    60: lambda: storm("kaiwo.ai/last-checkpoint", "170000$N", spec={}),
    61: lambda: storm("kaiwo.ai/gang", "g-$N"),
    62: lambda: storm("kaiwo.ai/queue", "q-$N"),
    63: a_selector_and_labels_of_its_own_for_each,
    95: levels_of_their_own,
    96: gangs_that_ask_for_ranks_levels_and_bandwidth,
    97: a_bandwidth_of_its_own_for_each,
    98: names_for_run_times,
    99: claims_that_do_not_exist,
    100: lambda: storm("kaiwo.ai/progress", "step=$Nms expected=1ms", spec={}),
    101: lambda: storm("kaiwo.ai/progress", "nonsense $N", spec={}),
    102: lambda: storm("kaiwo.ai/bandwidth", "$NMB/s"),
    103: lambda: storm("kaiwo.ai/required-level", "example.com/l$N"),
}


@asynccontextmanager
async def flooding(plane: Plane, lines: Iterator[Json], file: Path) -> AsyncIterator[None]:
    file.write_text("\n".join(msgspec.json.encode(line).decode() for line in lines))
    command = (executable, "-m", "tests.clusters.kubernetes.tenant_flood", str(plane.kubeconfig), str(file))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=ROOT)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        assert said.startswith(b"made"), said
        yield
    finally:
        process.stdin.close()
        await process.wait()


async def seconds_until_bound(kubectl: Kubectl, name: str) -> float:
    began_s = time.monotonic()
    await kubectl.pod(name)
    while not (await kubectl.read_pod(name))["spec"].get("nodeName"):
        assert time.monotonic() - began_s < PATIENCE_S, f"{name} waits"
        await asyncio.sleep(0.01)
    return time.monotonic() - began_s


@pytest.mark.parametrize("number", FLOODS)
def test_no_flood_delays_others(plane: Plane, tmp_path: Path, number: int) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            for node in range(4):
                await kubectl.node(f"node-{node}")
            with suppress(ApiError):  # an earlier test made it
                await kubectl.create("/api/v1/namespaces", {"metadata": {"name": HOME}})
            try:
                quiet_s = max([await seconds_until_bound(kubectl, f"early-{each}") for each in range(LATE)])
                async with flooding(plane, FLOODS[number](), tmp_path / "flood.jsonl"):
                    late_s = max([await seconds_until_bound(kubectl, f"late-{each}") for each in range(LATE)])
                assert is_in_time(late_s - quiet_s, DELAY_S), f"{quiet_s:.2f} s before, {late_s:.2f} s during the flood"
                print(f"\nattempt {number}: {quiet_s:.2f} s before, {late_s:.2f} s during the flood")
            finally:
                await kubectl.delete(PODS)  # all of them at once

    run(test())
