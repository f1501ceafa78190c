"""One gang of every kind that Kaiwo knows, as people and controllers would put it on an API server.

In:    a Kubectl.   Out: the objects above, created; and the pods, one by one, as the controller would make them.
The controllers themselves do not run here: what they make of these kinds is in the recordings.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl

TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "work"}]}}
JOBS = "/apis/batch/v1/namespaces/default/jobs"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
Make = Callable[[], Awaitable[Json]]


class GangKind(NamedTuple):
    """`crds`: files of the project that the kind comes from."""

    prepare: Callable[[Kubectl], Awaitable[list[Make]]]
    crds: tuple[str, ...] = ()


def refer_to(owner: Json, api_version: str, kind: str) -> dict[str, Any]:
    reference = {"apiVersion": api_version, "kind": kind, "name": owner["metadata"]["name"]}
    return {"ownerReferences": [{**reference, "uid": owner["metadata"]["uid"], "controller": True}]}


async def create(kubectl: Kubectl, version: str, kind: str, plural: str, spec: Json, **metadata: Any) -> dict[str, Any]:
    """The metadata of pods that belong to it."""
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "g", **metadata}, "spec": spec}
    return refer_to(await kubectl.create(f"/apis/{version}/namespaces/default/{plural}", body), version, kind)


def pods(kubectl: Kubectl, names: list[str], **rest: Any) -> list[Make]:
    def maker(name: str) -> Make:
        return lambda: kubectl.pod(name, **rest)

    return [maker(name) for name in names]


async def job(kubectl: Kubectl, **metadata: Any) -> list[Make]:
    spec = {"parallelism": 3, "completions": 3, "completionMode": "Indexed", "template": TEMPLATE}
    return pods(kubectl, ["g-0", "g-1", "g-2"], **await create(kubectl, "batch/v1", "Job", "jobs", spec, **metadata))


async def kaiwo_job(kubectl: Kubectl) -> list[Make]:
    """Its controller comes later: the Job that it owns is what counts."""
    above = {"metadata": {"name": "g", "uid": "6f9619ff-8b86-d011-b42d-00c04fc964ff"}}
    return await job(kubectl, name="k", **refer_to(above, "kaiwo.silogen.ai/v1alpha1", "KaiwoJob"))


async def jobset(kubectl: Kubectl) -> list[Make]:
    inner = {"parallelism": 1, "completions": 1, "template": TEMPLATE}
    roles = [{"name": "leader", "replicas": 1}, {"name": "workers", "replicas": 2}]
    spec = {"replicatedJobs": [{**role, "template": {"spec": inner}} for role in roles]}
    above = await create(kubectl, "jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", spec)
    made: list[Make] = []
    for role, index in (("leader", 0), ("workers", 0), ("workers", 1)):
        prefix = "jobset.sigs.k8s.io/"
        labels = {
            f"{prefix}jobset-name": "g",
            f"{prefix}jobset-uid": above["ownerReferences"][0]["uid"],
            f"{prefix}replicatedjob-name": role,
        }
        body = {"metadata": {"name": f"g-{role}-{index}", "labels": labels, **above}, "spec": inner}
        own = refer_to(await kubectl.create(JOBS, body), "batch/v1", "Job")
        made += pods(kubectl, [f"g-{role}-{index}-0"], labels=labels, **own)
    return made


def training_job(kind: str, first: str) -> Callable[[Kubectl], Awaitable[list[Make]]]:
    async def prepare(kubectl: Kubectl) -> list[Make]:
        replicas = {role: {"replicas": count, "template": TEMPLATE} for role, count in ((first, 1), ("Worker", 2))}
        spec = {f"{kind.removesuffix('Job').lower()}ReplicaSpecs": replicas}
        own = await create(kubectl, "kubeflow.org/v1", kind, f"{kind.lower()}s", spec)
        labels = {"training.kubeflow.org/job-name": "g", "training.kubeflow.org/replica-type": first.lower()}
        workers = labels | {"training.kubeflow.org/replica-type": "worker"}
        head = pods(kubectl, [f"g-{first.lower()}-0"], labels=labels, **own)
        return [*head, *pods(kubectl, ["g-worker-0", "g-worker-1"], labels=workers, **own)]

    return prepare


async def ray_cluster(kubectl: Kubectl) -> list[Make]:
    group = {"groupName": "gpu", "replicas": 2, "minReplicas": 1, "maxReplicas": 2, "rayStartParams": {}}
    spec = {
        "headGroupSpec": {"rayStartParams": {}, "template": TEMPLATE},
        "workerGroupSpecs": [group | {"template": TEMPLATE}],
    }
    own = await create(kubectl, "ray.io/v1", "RayCluster", "rayclusters", spec)
    head = {"ray.io/cluster": "g", "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    worker = {"ray.io/cluster": "g", "ray.io/node-type": "worker", "ray.io/group": "gpu"}
    return [
        *pods(kubectl, ["g-head"], labels=head, **own),
        *pods(kubectl, ["g-gpu-0", "g-gpu-1"], labels=worker, **own),
    ]


async def leader_worker_set(kubectl: Kubectl) -> list[Make]:
    """The workers' StatefulSet belongs to the leader's pod, and comes with it."""
    version = "leaderworkerset.x-k8s.io/v1"
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}}
    above = await create(kubectl, version, "LeaderWorkerSet", "leaderworkersets", spec)
    prefix = "leaderworkerset.sigs.k8s.io/"

    def marks(index: int) -> dict[str, Any]:
        labels = {f"{prefix}name": "g", f"{prefix}group-index": "0", f"{prefix}worker-index": str(index)}
        return {"labels": labels, "annotations": {f"{prefix}size": "3"}}

    async def stateful(name: str, above: dict[str, Any], replicas: int) -> dict[str, Any]:
        template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": TEMPLATE["spec"]["containers"]}}
        selector = {"matchLabels": {"app": name}}
        spec = {"replicas": replicas, "serviceName": "g", "selector": selector, "template": template}
        body = {"metadata": {"name": name, **above}, "spec": spec}
        return refer_to(await kubectl.create(SETS, body), "apps/v1", "StatefulSet")

    leaders = await stateful("g", above, 1)
    own: dict[str, Any] = {}

    async def leader() -> Json:
        pod = await kubectl.pod("g-0", **marks(0), **leaders)
        own.update(await stateful("g-0", refer_to(pod, "v1", "Pod"), 2))
        return pod

    return [leader, *(lambda n=n: kubectl.pod(f"g-0-{n}", **marks(n), **own) for n in (1, 2))]


async def kueue_group(kubectl: Kubectl) -> list[Make]:
    named: dict[str, Any] = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"},
    }
    return pods(kubectl, ["g-0", "g-1", "g-2"], **named)


async def pod_group(kubectl: Kubectl) -> list[Make]:
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    await create(kubectl, "scheduling.k8s.io/v1alpha2", "PodGroup", "podgroups", spec)
    return pods(kubectl, ["g-0", "g-1", "g-2"], schedulingGroup={"podGroupName": "g"})


async def kai_pod_group(kubectl: Kubectl) -> list[Make]:
    await create(kubectl, "scheduling.run.ai/v2alpha2", "PodGroup", "podgroups", {"minMember": 3, "queue": "q"})
    return pods(kubectl, ["g-0", "g-1", "g-2"], annotations={"pod-group-name": "g"})


async def our_gang(kubectl: Kubectl) -> list[Make]:
    named = {"annotations": {"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "3"}}
    return pods(kubectl, ["g-0", "g-1", "g-2"], **named)


GANG_KINDS: dict[str, GangKind] = {
    "Job": GangKind(job),
    "KaiwoJob": GangKind(kaiwo_job),
    "JobSet": GangKind(jobset, ("jobset.x-k8s.io_jobsets",)),
    "PyTorchJob": GangKind(training_job("PyTorchJob", "Master"), ("kubeflow.org_pytorchjobs",)),
    "MPIJob": GangKind(training_job("MPIJob", "Launcher"), ("kubeflow.org_mpijobs",)),
    "TFJob": GangKind(training_job("TFJob", "Chief"), ("kubeflow.org_tfjobs",)),
    "RayCluster": GangKind(ray_cluster, ("ray.io_rayclusters",)),
    "LeaderWorkerSet": GangKind(leader_worker_set, ("leaderworkerset.x-k8s.io_leaderworkersets",)),
    "Kueue pod group": GangKind(kueue_group),
    "PodGroup": GangKind(pod_group),
    "PodGroup of KAI": GangKind(kai_pod_group, ("scheduling.run.ai_podgroups",)),
    "gang": GangKind(our_gang),
}
