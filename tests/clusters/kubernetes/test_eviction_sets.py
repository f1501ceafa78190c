"""What stops for one beneficiary is evicted as a whole or not at all."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.disruption_budgets import BudgetObject, read_budget
from kaiwo.clusters.kubernetes.client import ApiError
from kaiwo.clusters.kubernetes.decode.pod_decoder import PodDecoder
from kaiwo.clusters.kubernetes.writers.evictor import Evictor, eviction_body
from kaiwo.clusters.kubernetes.writers.pod_writes import PodWrites
from kaiwo.model.plan import Eviction, EvictionCause
from kaiwo.model.workload import Phase
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.kubectl_cluster import Kubectl, opened, pod_path, start_of, whole
from tests.clusters.kubernetes.test_disruption_budgets import budget
from tests.controlplane.plane import Plane
from tests.waiting import run, until_answer

FOUR = {"kaiwo.ai/gang": "train", "kaiwo.ai/gang-size": "4"}


class Answers:
    """A server that answers evictions as a test wants, and remembers what it was asked."""

    def __init__(self, refuse: Callable[[str, bool], ApiError | None]) -> None:
        self._refuse, self.dry, self.real = refuse, list[str](), list[str]()

    async def write(self, method: str, path: str, *_: object, **__: object) -> bytes:
        pod, is_dry = path.split("/pods/")[1].split("/")[0], path.endswith("dryRun=All")
        (self.dry if is_dry else self.real).append(pod)
        if (error := self._refuse(pod, is_dry)) is not None:
            raise error
        return b"{}"


def gang_and_evictor(answers: Answers) -> tuple[ClusterCache, Evictor, list[Eviction], list[str]]:
    """A gang of four that runs, and what stops it for another workload."""
    cache = cache_with_nodes()
    for number in range(4):
        cache.upsert_pod(cached_pod(f"w-{number}", node="node-1", phase="Running", labels={"a": "b"}, annotations=FOUR))
    cache.flush()
    released: list[str] = []
    client: Any = SimpleNamespace(write=answers.write)
    nothing: Any = lambda *_, **__: None  # noqa: E731
    writes = PodWrites(client, cache, PodDecoder(), nothing, nothing, nothing)
    evictor = Evictor(writes, lambda: 1000, released.append)
    plan = [Eviction("default/train", f"main-{n}", EvictionCause.RECLAIM, "default/other") for n in range(4)]
    return cache, evictor, plan, released


async def finish() -> None:
    """Until nothing is under way but the pauses after a final refusal."""
    for _ in range(50):
        await asyncio.sleep(0.01)


def phases(cache: ClusterCache) -> set[Phase]:
    cache.flush()
    return {pod.phase for pod in cache.published.pods["default/train"].values()}


FORBIDDEN = ApiError(403, "Forbidden", "nobody leaves today", call="POST eviction")


def test_a_policy_that_refuses_one_pod_stops_none_of_the_gang() -> None:
    async def test() -> None:
        answers = Answers(lambda pod, is_dry: FORBIDDEN if pod == "w-2" else None)
        cache, evictor, plan, released = gang_and_evictor(answers)
        assert len(evictor.evict(plan)) == 4
        await finish()
        assert sorted(answers.dry) == ["w-0", "w-1", "w-2", "w-3"]
        assert answers.real == []
        assert phases(cache) == {Phase.RUNNING}
        assert "nobody leaves today" in cache.published.workloads["default/train"].stays_why
        assert set(released) == {"default/other"}

    run(test())


POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
EVICTS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
KEEP_ONE = {
    "matchConstraints": {"resourceRules": [EVICTS]},
    "validations": [{"expression": 'request.name != "w-1"', "message": "w-1 is precious"}],
}


async def why_it_would_stay(kubectl: Kubectl, name: str) -> str:
    """What the server says to a trial of its eviction; empty: it would go."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    try:
        await kubectl.create(f"{pod_path(name)}/eviction?dryRun=All", body)
    except ApiError as error:
        return error.message
    return ""


def test_a_policy_of_the_real_server_that_refuses_one_pod_stops_none_of_the_gang(plane: Plane) -> None:
    names = [f"w-{number}" for number in range(3)]
    slots = [f"main-{number}" for number in range(3)]

    async def test() -> None:
        async with opened(plane) as scene:
            for name in names:
                await scene.kubectl.pod(name, annotations={"kaiwo.ai/gang": "train", "kaiwo.ai/gang-size": "3"})
            await scene.until_waiting("train")
            await scene.start(*(start_of("train", slot, devices=whole(n)) for n, slot in enumerate(slots)))
            for name in names:
                await scene.kubectl.phase(name, "Running")
            await scene.until(lambda: {pod.phase for pod in scene.state.pods.values()} == {Phase.RUNNING})
            keep = {"metadata": {"name": "keep-one"}}
            await scene.kubectl.create(POLICIES, {**keep, "spec": KEEP_ONE})
            await scene.kubectl.create(
                BINDINGS, {**keep, "spec": {"policyName": "keep-one", "validationActions": ["Deny"]}}
            )
            try:
                await until_answer(lambda: why_it_would_stay(scene.kubectl, "w-1"), lambda why: "precious" in why)
                assert len(await scene.evict("train", *slots)) == 3
                await scene.until(lambda: "w-1 is precious" in scene.workload("train").stays_why, "the refusal")
                pods = [await scene.kubectl.read_pod(name) for name in names]
                assert not any("deletionTimestamp" in pod["metadata"] for pod in pods)
                await scene.until(lambda: {pod.phase for pod in scene.state.pods.values()} == {Phase.RUNNING})
            finally:
                await scene.kubectl.delete(f"{BINDINGS}/keep-one")
                await scene.kubectl.delete(f"{POLICIES}/keep-one")

    run(test())


def test_a_budget_is_counted_for_all_that_would_stop_together() -> None:
    async def test() -> None:
        answers = Answers(lambda *_: None)
        cache, evictor, plan, _ = gang_and_evictor(answers)
        item = budget("tight", {"matchLabels": {"a": "b"}}) | {"status": {"disruptionsAllowed": 3}}
        cache.budgets.upsert(read_budget(msgspec.convert(item, BudgetObject)), cache.pods.values())
        evictor.evict(plan)
        await finish()
        assert (answers.dry, answers.real) == ([], [])
        assert phases(cache) == {Phase.RUNNING}
        assert "budget default/tight allows 3 evictions now" in cache.published.workloads["default/train"].stays_why

    run(test())


def test_an_eviction_that_is_refused_after_its_dry_run_leaves_only_that_pod() -> None:
    async def test() -> None:
        answers = Answers(lambda pod, is_dry: FORBIDDEN if pod == "w-2" and not is_dry else None)
        cache, evictor, plan, released = gang_and_evictor(answers)
        evictor.evict(plan)
        await finish()
        assert sorted(answers.real) == ["w-0", "w-1", "w-2", "w-3"]
        pod = cache.pods["default", "w-2"]
        assert "nobody leaves today" in cache.in_flight.refused_evictions[pod.uid]
        assert pod.uid not in cache.in_flight.evictions
        assert set(released) == {"default/other"}

    run(test())


def test_a_single_pod_needs_no_dry_run() -> None:
    async def test() -> None:
        answers = Answers(lambda *_: None)
        cache = cache_with_nodes()
        cache.upsert_pod(cached_pod("p", node="node-1", phase="Running"))
        cache.flush()
        client: Any = SimpleNamespace(write=answers.write)
        nothing: Any = lambda *_, **__: None  # noqa: E731
        evictor = Evictor(PodWrites(client, cache, PodDecoder(), nothing, nothing, nothing), lambda: 1000, nothing)
        evictor.evict([Eviction("default/p", "main-0", EvictionCause.RECLAIM, "default/other")])
        await finish()
        assert (answers.dry, answers.real) == ([], ["p"])

    run(test())


@pytest.mark.parametrize(("asked_s", "given_s"), [(30, None), (3600, None), (3601, 3600), (300_000_000, 3600)])
def test_nobody_takes_longer_than_an_hour_to_go(asked_s: int, given_s: int | None) -> None:
    """A grace period of years would make a pod that nobody can stop for others."""
    pod = cached_pod("w", node="node-1", phase="Running", terminationGracePeriodSeconds=asked_s)
    assert msgspec.json.decode(eviction_body(pod))["deleteOptions"].get("gracePeriodSeconds") == given_s
