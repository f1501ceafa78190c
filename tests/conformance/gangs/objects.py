"""Kubernetes objects as controllers make them, from a few words: owners, and pods with the labels that count.

UIDs come from names, so the same words always give the same objects.
"""

from typing import Any
from uuid import NAMESPACE_URL, uuid5

Object = dict[str, Any]


def make_object(api_version: str, kind: str, name: str, owner: Object | None = None, **rest: Any) -> Object:
    """Any object; `annotations` and `labels` go where they belong."""
    namespace = rest.pop("namespace", "default")
    metadata: Object = {
        "name": name,
        "namespace": namespace,
        "uid": rest.pop("uid", str(uuid5(NAMESPACE_URL, f"{kind}/{namespace}/{name}"))),
        "resourceVersion": "7",
    }
    for part in ("labels", "annotations", "deletionTimestamp"):
        if rest.get(part):
            metadata[part] = rest[part]
        rest.pop(part, None)
    if owner:
        metadata["ownerReferences"] = [refer_to(owner)]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def refer_to(owner: Object, controller: bool = True) -> Object:
    metadata = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": controller}
    return {**reference, "name": metadata["name"], "uid": metadata["uid"], "blockOwnerDeletion": True}


def make_pod(name: str, owner: Object | None = None, node: str = "", phase: str = "Pending", **rest: Any) -> Object:
    """A pod that waits, unless it has a node or a phase."""
    spec: Object = {"containers": [{"name": "main"}], "schedulerName": "kaiwo-scheduler", **rest.pop("spec", {})}
    if node:
        spec["nodeName"] = node
    status: Object = {"phase": phase, "qosClass": "BestEffort"}
    if rest.pop("ready", False):
        status["conditions"] = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
    return make_object("v1", "Pod", name, owner, spec=spec, status=status, **rest)


def make_job(name: str, owner: Object | None = None, status: Object | None = None, **rest: Any) -> Object:
    """`parallelism`, `completions`, `suspend` and the like go into its spec."""
    parts = {part: rest.pop(part) for part in ("labels", "annotations", "namespace", "uid") if part in rest}
    template = {"metadata": rest.pop("template_metadata", {}), "spec": rest.pop("template_spec", {})}
    spec = {"completionMode": "NonIndexed", "template": template, **rest}
    return make_object("batch/v1", "Job", name, owner, spec=spec, status=status or {}, **parts)


def make_job_pods(job: Object, count: int, first: int = 0, **rest: Any) -> list[Object]:
    """Pods of an indexed Job, as its controller names and labels them."""
    name = job["metadata"]["name"]
    template = job["spec"]["template"]["metadata"]
    labels = {"batch.kubernetes.io/job-name": name, **job["metadata"].get("labels", {}), **template.get("labels", {})}
    notes = {**job["metadata"].get("annotations", {}), **template.get("annotations", {})}
    extra = rest.pop("labels", {})
    spec = {**job["spec"]["template"]["spec"], **rest.pop("spec", {})}
    return [
        make_pod(
            f"{name}-{index}-{job['metadata']['uid'][:5]}",
            job,
            labels={**labels, "batch.kubernetes.io/job-completion-index": str(index), **extra},
            annotations={**notes, "batch.kubernetes.io/job-completion-index": str(index)},
            spec=spec,
            **rest,
        )
        for index in range(first, first + count)
    ]


def make_jobset(name: str, *replicated: Object, status: Object | None = None, **rest: Any) -> Object:
    parts = {part: rest.pop(part) for part in ("annotations", "namespace") if part in rest}
    spec = {"replicatedJobs": list(replicated), **rest}
    return make_object("jobset.x-k8s.io/v1alpha2", "JobSet", name, spec=spec, status=status or {}, **parts)


def replicated_job(name: str, replicas: int, parallelism: int, **rest: Any) -> Object:
    template_spec, annotations = rest.pop("template_spec", {}), rest.pop("annotations", {})
    job = {"parallelism": parallelism, "completions": parallelism, "completionMode": "Indexed"}
    job["template"] = {"metadata": {}, "spec": template_spec}
    template = {"metadata": {"annotations": annotations}, "spec": job}
    return {"name": name, "replicas": replicas, "template": template, **rest}


def make_jobset_jobs(jobset: Object, role: str, attempt: int = 0) -> list[Object]:
    """The Jobs of one replicated job."""
    replicated = next(each for each in jobset["spec"]["replicatedJobs"] if each["name"] == role)
    metadata = jobset["metadata"]
    prefix = "jobset.sigs.k8s.io/"
    spec = replicated["template"]["spec"]
    notes = {**metadata.get("annotations", {}), **replicated["template"]["metadata"].get("annotations", {})}
    jobs = []
    for index in range(replicated["replicas"]):
        labels = {
            f"{prefix}jobset-name": metadata["name"],
            f"{prefix}jobset-uid": metadata["uid"],
            f"{prefix}replicatedjob-name": role,
            f"{prefix}replicatedjob-replicas": str(replicated["replicas"]),
            f"{prefix}job-index": str(index),
            f"{prefix}global-replicas": "99",  # counts Jobs, not pods
            f"{prefix}restart-attempt": str(attempt),
        }
        name = f"{metadata['name']}-{role}-{index}"
        uid = str(uuid5(NAMESPACE_URL, f"{name}/{attempt}"))
        job = make_object(
            "batch/v1", "Job", name, jobset, uid=uid, labels=labels, annotations=notes, spec=spec, status={}
        )
        jobs.append(job)
    return jobs


def make_ray_cluster(name: str, *groups: Object, owner: Object | None = None, **rest: Any) -> Object:
    version = rest.pop("api_version", "ray.io/v1")
    return make_object(version, "RayCluster", name, owner, spec={"workerGroupSpecs": list(groups), **rest})


def make_ray_pods(cluster: Object, group: str, count: int, **rest: Any) -> list[Object]:
    """Pods of one group; `headgroup` is the head's."""
    kind = "head" if group == "headgroup" else "worker"
    name = cluster["metadata"]["name"]
    labels = {"ray.io/cluster": name, "ray.io/node-type": kind, "ray.io/group": group, **rest.pop("labels", {})}
    return [make_pod(f"{name}-{group}-{kind}-{index}", cluster, labels=labels, **rest) for index in range(count)]


def make_training_job(kind: str, name: str, replicas: dict[str, int | None], **rest: Any) -> Object:
    field = {"XGBoostJob": "xgb"}.get(kind, kind.removesuffix("Job").lower())
    specs = {role: {} if count is None else {"replicas": count} for role, count in replicas.items()}
    version = rest.pop("api_version", "kubeflow.org/v1")
    return make_object(version, kind, name, spec={f"{field}ReplicaSpecs": specs, **rest})


def make_training_pods(job: Object, role: str, count: int, owner: Object | None = None, **rest: Any) -> list[Object]:
    name = job["metadata"]["name"]
    labels = {"training.kubeflow.org/job-name": name, "training.kubeflow.org/replica-type": role}
    return [make_pod(f"{name}-{role}-{index}", owner or job, labels=labels, **rest) for index in range(count)]


def make_lws(name: str, size: int, annotations: dict[str, str] | None = None, **rest: Any) -> Object:
    spec = {"leaderWorkerTemplate": {"size": size}, "startupPolicy": "LeaderCreated", **rest}
    version = "leaderworkerset.x-k8s.io/v1"
    return make_object(version, "LeaderWorkerSet", name, spec=spec, annotations=annotations)


def make_lws_replica(lws: Object, index: int, workers: int, **leader: Any) -> tuple[list[Object], list[Object]]:
    """The StatefulSets and the pods of one replica: the workers' set belongs to the leader's pod."""
    name = lws["metadata"]["name"]
    prefix = "leaderworkerset.sigs.k8s.io/"
    size = str(lws["spec"]["leaderWorkerTemplate"]["size"])
    labels = {f"{prefix}name": name, f"{prefix}group-index": str(index)}
    notes = {f"{prefix}size": size, **lws["metadata"].get("annotations", {})}
    leaders = make_object("apps/v1", "StatefulSet", name, lws)
    first = make_pod(
        f"{name}-{index}", leaders, labels={**labels, f"{prefix}worker-index": "0"}, annotations=notes, **leader
    )
    sets = [leaders]
    if workers:
        sets.append(make_object("apps/v1", "StatefulSet", f"{name}-{index}", first))
    others = [
        make_pod(
            f"{name}-{index}-{worker}",
            sets[-1],
            labels={**labels, f"{prefix}worker-index": str(worker)},
            annotations=notes,
        )
        for worker in range(1, workers + 1)
    ]
    return sets, [first, *others]
