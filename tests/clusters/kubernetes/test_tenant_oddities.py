"""A tenant writes pods that nobody would write: huge numbers, odd texts, false indexes. Nobody else notices.

The scheduler runs without webhooks and policies on the real API server, so that nothing but itself stands in the way.
The numbers are those of the table in docs/security.md.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kaiwo.clusters.kubernetes.client import ApiError
from tests.clusters.kubernetes.kubectl_cluster import Json, pod_path
from tests.clusters.kubernetes.running_scheduler import until_bound
from tests.clusters.kubernetes.test_unguarded_tenant import HOME, QUEUES, World, tenant, unguarded
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S

__all__ = ["tenant"]  # the fixture
LIMIT = 4  # GPUs of his queue
DELAY_S = 1.0
Attempt = Callable[[World], Awaitable[None]]
ESCAPES = "\x1b[2J\x1b]0;root\x07\u202e\u2066\x00".replace("\x00", "\x7f") + "ｇang\u200b"


def container(**amounts: str) -> Json:
    return {"name": "main", "image": "work", "resources": {"requests": amounts, "limits": amounts}}


def pods(*specs: Json, **common: object) -> Attempt:
    """Some pods; `annotations` and `labels` go to the metadata."""

    async def attempt(world: World) -> None:
        for at, spec in enumerate(specs):
            await world.tenant.pod(f"odd-{at}", spec.pop("gpus", 1), HOME, **{**common, **spec})

    return attempt


def notes(**values: str) -> Json:
    return {"annotations": {f"kaiwo.ai/{key.replace('_', '-')}": value for key, value in values.items()}}


def affinity(*rules: Json) -> Json:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(rules)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


async def leave_by_finalizer(world: World) -> None:
    """Its kubelet says that it ended; the object stays for ever."""
    await world.tenant.pod("odd-0", LIMIT, HOME, annotations={}, labels={"left": "behind"})
    await is_bound(world, "odd-0")
    await world.admin.phase("odd-0", "Running", HOME)
    await world.tenant.patch(pod_path("odd-0", HOME), {"metadata": {"finalizers": ["example.com/stay"]}})
    await world.tenant.delete(pod_path("odd-0", HOME))
    await world.admin.phase("odd-0", "Failed", HOME)
    await world.tenant.pod("odd-1", LIMIT, HOME)
    await world.tenant.pod("odd-2", 1, HOME)


async def is_bound(world: World, name: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not (await world.admin.read_pod(name, HOME))["spec"].get("nodeName"):
        assert time.monotonic() < until_s, f"{name} was not bound"
        await asyncio.sleep(0.05)


BIG, HUGE = "9223372036854775807", "9" * 5000
ATTEMPTS: dict[int, tuple[str, Attempt]] = {
    106: ("claim shares of all GPUs with annotations and `nodeName`, without asking for a GPU", pods(
        *({"gpus": 0, "nodeName": "node-1", "schedulerName": "nobody"} for _ in range(8)),
        **notes(gpu_fraction="1", gpu_devices="8"))),
    107: ("the same as a pod of Kaiwo", pods(
        *({"gpus": 0, "nodeName": "node-1", "terminationGracePeriodSeconds": 0} for _ in range(8)),
        **notes(gpu_fraction="1", gpu_devices="8"))),
    108: ("ask for 2^63 - 1 GPUs", pods({"containers": [container(**{"amd.com/gpu": BIG})]})),
    109: ("the same in three containers, whose sum is larger", pods(
        {"containers": [{**container(**{"amd.com/gpu": BIG, "cpu": BIG, "memory": "8Ei"}), "name": f"c{at}"}
                        for at in range(3)]})),
    110: ("ask for 9 E CPUs and memory", pods({"containers": [container(cpu="9E", memory="9E")]})),
    111: ("a gang of a million pods that each ask for 2^63 - 1 GPUs", pods(
        {"containers": [container(**{"amd.com/gpu": BIG})]}, **notes(gang="g", gang_size="1000000"))),
    112: ("a gang size of 5,000 digits", pods({}, **notes(gang="g", gang_size=HUGE))),
    113: ("fractions, memory and devices of 5,000 digits", pods(
        *({"gpus": 0, **notes(**{key: HUGE})} for key in
          ("gpu_fraction", "gpu_memory", "gpu_devices", "gpu_threads")))),
    114: ("priorities, times and costs of 5,000 digits", pods(
        *(notes(**{key: HUGE}) for key in ("priority", "time", "estimate", "restart_cost", "preemption_delay",
                                           "last_checkpoint", "progress", "bandwidth", "min_pods", "expires")))),
    115: ("a node affinity with numbers of 5,000 digits", pods(
        *({**affinity({"key": "x", "operator": way, "values": [HUGE]})} for way in ("Gt", "Lt")))),
    116: ("a spread with the largest skew and number of domains", pods({"labels": {"a": "b"},
        "topologySpreadConstraints": [{"maxSkew": 2147483647, "minDomains": 2147483647, "topologyKey": "kubernetes.io/"
                                       "hostname", "whenUnsatisfiable": "DoNotSchedule",
                                       "labelSelector": {"matchLabels": {"a": "b"}}}]})),
    117: ("escape sequences and invisible letters in all texts", pods(
        *(notes(**{key: ESCAPES}) for key in ("gang", "queue", "user", "reservation", "leader", "gpu_models", "type",
                                              "after", "topology", "gpu_share_with", "time")))),
    118: ("200 KB of annotations on each of 40 pods", pods(
        *({"annotations": {"example.com/a": "x" * 200_000}, "nodeSelector": {"no": "where"}} for _ in range(40)))),
    119: ("2,000 invented keys of Kaiwo", pods(
        {"annotations": {f"kaiwo.ai/invented-{at}": "x" for at in range(2000)}})),
    120: ("a place in the gang of 10^12, by every controller's label", pods(*(
        {"labels": {"batch.kubernetes.io/job-completion-index": "999999999999",
                    "apps.kubernetes.io/pod-index": "999999999999",
                    "leaderworkerset.sigs.k8s.io/worker-index": "999999999999",
                    "leaderworkerset.sigs.k8s.io/name": "made-up", "leaderworkerset.sigs.k8s.io/group-index": "9" * 40,
                    "training.kubeflow.org/replica-index": "999999999999",
                    "jobset.sigs.k8s.io/job-index": "999999999999"},
         **notes(gang="g", gang_size="2")} for _ in range(2)))),
    121: ("a Kueue group of 10^20 pods, and of -1", pods(
        {"labels": {"kueue.x-k8s.io/pod-group-name": "g"},
         "annotations": {"kueue.x-k8s.io/pod-group-total-count": "1" + "0" * 20}},
        {"labels": {"kueue.x-k8s.io/pod-group-name": "h"},
         "annotations": {"kueue.x-k8s.io/pod-group-total-count": "-1"}})),
    122: ("the groups of other schedulers, which do not exist", pods(
        {"labels": {"scheduling.x-k8s.io/pod-group": "x", "pod-group.scheduling.sigs.k8s.io": "y"}},
        {"annotations": {"scheduling.k8s.io/group-name": ESCAPES, "pod-group-name": HUGE}},
        {"schedulingGroup": {"podGroupName": "made-up"}})),
    123: ("the highest priority class of the system", pods({"gpus": 8, "priorityClassName": "system-node-critical"})),
    124: ("32 device claims that name each other's templates", pods(
        {"resourceClaims": [{"name": f"c{at}", "resourceClaimTemplateName": f"c{at + 1}"} for at in range(32)]})),
    125: ("400 init containers that each ask for all GPUs", pods(
        {"initContainers": [{**container(**{"amd.com/gpu": "8"}), "name": f"i{at}"} for at in range(400)]})),
    126: ("1,000 node selectors and 500 readiness gates", pods(
        {"nodeSelector": {f"k{at}": "v" for at in range(1000)},
         "readinessGates": [{"conditionType": f"example.com/g{at}"} for at in range(500)]})),
    127: ("times before 1970 and after 9999", pods(
        *(notes(**{key: text}) for key in ("last_checkpoint", "expires", "not_before")
          for text in ("-1", "0000-00-00T00:00:00Z", "9999-12-31T23:59:59Z", "253402300800")))),
    128: ("leave a pod behind with a finalizer, and go on beside it", leave_by_finalizer),
    129: ("JSON and YAML where one word is expected", pods(
        *(notes(**{key: text}) for key in ("gpu_share_with", "gpu_models", "levels", "segments", "after")
          for text in ("[" * 900, "{" * 900, "&a [*a]", "!!python/object:os.system x", ",".join("a" * 300))))),
    130: ("50 tiny gangs at once, which start", pods(
        *({"gpus": 0, **notes(gang=f"tiny-{at // 2}", gang_size="2"), "containers": [container(cpu="1m")]}
          for at in range(100)))),
}  # fmt: skip


@pytest.mark.timeout(900)
def test_nothing_that_a_tenant_writes_gives_him_more_or_delays_others(
    plane: Plane, tenant: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gained: list[str] = []

    async def check() -> None:
        async with unguarded(plane, tenant, tmp_path) as world:
            await world.admin.node("node-2")
            spec = {"namespaces": [HOME], "resources": {"gpu": {"quota": LIMIT, "limit": LIMIT}}}
            await world.admin.create(QUEUES, {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue",
                                              "metadata": {"name": "lab"}, "spec": spec})  # fmt: skip
            await world.admin.pod("before", 1)
            await until_bound(world.admin, "before")
            for number, (title, attempt) in ATTEMPTS.items():
                gained.extend(f"{number} ({title}): {what}" for what in await one(world, number, attempt))
            await world.admin.delete(f"{QUEUES}/lab")

    asyncio.run(asyncio.wait_for(check(), 880))
    said = capfd.readouterr()
    assert "Traceback" not in said.err + said.out
    assert gained == []


async def one(world: World, number: int, attempt: Attempt) -> list[str]:
    """What he gained, and whether somebody else was delayed: a pod that needs all that he may not have."""
    gained = []
    with_refusal = ""
    try:
        await attempt(world)
    except ApiError as error:
        with_refusal = str(error)[:150]
    others, took_s = f"other-{number}", []
    for _ in range(3):  # the best of three: a busy machine is no tenant
        began_s = time.monotonic()
        await world.admin.pod(others, 7)
        await until_bound(world.admin, others)
        took_s.append(time.monotonic() - began_s)
        if took_s[-1] > DELAY_S:
            await world.admin.delete(pod_path(others, "default"))
            continue
        break
    if min(took_s) > DELAY_S:
        gained.append(f"others wait {min(took_s):.1f} s")
    await asyncio.sleep(0.5)
    found = await world.admin.get(f"/api/v1/namespaces/{HOME}/pods")
    over = ("Succeeded", "Failed")
    bound = [
        each for each in found["items"] if each["spec"].get("nodeName") and each["status"].get("phase") not in over
    ]
    whole = [
        int(str(each["resources"].get("limits", {}).get("amd.com/gpu", 0)))
        for pod in bound for each in pod["spec"]["containers"]
    ]  # fmt: skip
    held = sum(world.scheduler.loop.state.used.get("lab", [0])[:1])
    if sum(whole) > LIMIT or held > LIMIT * 1000:
        gained.append(f"{sum(whole)} GPUs, charged {held}")
    print(
        f"{number}: {min(took_s):.2f} s, {len(found['items'])} pods, {len(bound)} bound, {held} charged; {with_refusal}"
    )
    for each in found["items"]:
        if each["metadata"].get("finalizers"):
            await world.admin.patch(pod_path(each["metadata"]["name"], HOME), {"metadata": {"finalizers": None}})
    await asyncio.gather(*(world.admin.delete(pod_path(each["metadata"]["name"], HOME)) for each in found["items"]))
    await world.admin.delete(pod_path(others, "default"))
    return gained
