"""More recordings of the project's own: groups that pods name themselves, and pods that stand alone."""

from typing import Any

from tests.conformance.gangs import objects as o
from tests.conformance.gangs.recordings import Recording, record


def named_groups() -> dict[str, Recording]:
    told: dict[str, Recording] = {}
    kueue: dict[str, Any] = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"},
    }
    pods = [o.make_pod(f"p{n}", **kueue) for n in range(3)]
    told["a kueue pod group"] = record([], pods, (3, pods))
    told["a kueue pod group, partly created"] = record([], pods[:1], (3, pods[:1]))
    fast = {**kueue, "annotations": {**kueue["annotations"], "kueue.x-k8s.io/pod-group-fast-admission": "true"}}
    pods = [o.make_pod(f"p{n}", **fast) for n in range(2)]
    told["kueue's fast admission waits for nobody"] = record([], pods, (2, pods))
    serving = {**fast, "annotations": {**fast["annotations"], "kueue.x-k8s.io/pod-group-serving": "true"}}
    stateful = o.make_object("apps/v1", "StatefulSet", "web", spec={"replicas": 3})
    told["a serving stateful set is no gang"] = record([stateful], [o.make_pod("web-0", stateful, **serving)])
    for policy, groups in (({"basic": {}}, 0), ({"gang": {"minCount": 2}}, 1)):
        spec: dict[str, Any] = {"schedulingPolicy": policy}
        group = o.make_object("scheduling.k8s.io/v1alpha2", "PodGroup", "pg", spec=spec)
        pods = [o.make_pod(f"p{n}", spec={"schedulingGroup": {"podGroupName": "pg"}}) for n in range(3)]
        told[f"a pod group of kubernetes, {next(iter(policy))}"] = record([group], pods, *[(2, pods)] * groups)
    spec = {"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 2}}}]}
    workload = o.make_object("scheduling.k8s.io/v1alpha1", "Workload", "wl", spec=spec)
    replicas = [
        [
            o.make_pod(f"{key}{n}", spec={"workloadRef": {"name": "wl", "podGroup": "w", "podGroupReplicaKey": key}})
            for n in range(2)
        ]
        for key in ("a", "b")
    ]
    told["a workload of kubernetes 1.35"] = record(
        [workload], [*replicas[0], *replicas[1]], (2, replicas[0]), (2, replicas[1])
    )
    named = {"schedulingGroup": {"podGroupName": "pg"}}
    group = o.make_object(
        "scheduling.k8s.io/v1alpha2", "PodGroup", "pg", spec={"schedulingPolicy": {"gang": {"minCount": 8}}}
    )
    notes = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    jobset = o.make_jobset("js", o.replicated_job("slice", 2, 4, template_spec=named), annotations=notes)
    one, two = o.make_jobset_jobs(jobset, "slice")
    pods = o.make_job_pods(one, 1) + o.make_job_pods(two, 1)
    above = [group, jobset, one, two]
    told["a pod group larger than the first wave"] = record(above, pods, (2, pods))
    told["a pod group of which the first wave is not whole"] = record(above, pods[:1], (2, pods[:1]))
    led = o.make_job_pods(one, 1, node="n1") + o.make_job_pods(two, 1, node="n2")
    told["a pod group whose first wave is bound"] = record(above, led, (8, led))
    waves = o.make_job(
        "waves", parallelism=2, completions=6, annotations={"kaiwo.ai/gang": "w", "kaiwo.ai/gang-size": "6"}
    )
    pods = o.make_job_pods(waves, 2)
    told["our own gang of a job in waves"] = record([waves], pods, (2, pods))
    ours: dict[str, Any] = {"annotations": {"kaiwo.ai/gang": "ours", "kaiwo.ai/gang-size": "4"}}
    pods = [o.make_pod(f"p{n}", **ours) for n in range(4)]
    told["our own annotation"] = record([], pods, (4, pods))
    told["our own annotation, partly created"] = record([], pods[:2], (4, pods[:2]))
    one = o.make_job("one", parallelism=2, completions=2, annotations={"kaiwo.ai/gang": "both"})
    two = o.make_job("two", parallelism=3, completions=3, annotations={"kaiwo.ai/gang": "both"})
    pods = o.make_job_pods(one, 2) + o.make_job_pods(two, 2)
    told["two jobs in one gang"] = record([one, two], pods, (5, pods))
    plugin = o.make_object("scheduling.x-k8s.io/v1alpha1", "PodGroup", "pg", spec={"minMember": 3})
    labels = {"scheduling.x-k8s.io/pod-group": "pg"}
    strange = o.make_object("example.org/v1", "Swarm", "swarm")
    pods = [o.make_pod(f"s{n}", strange, labels=labels) for n in range(4)]
    told["a pod group of the scheduler plugins"] = record([plugin, strange], pods, (3, pods))
    told["a pod group that others left behind"] = record([strange], pods)
    leaves = [{"name": f"replica-{n}", "minMember": 2} for n in range(3)]
    tree = o.make_object(
        "scheduling.run.ai/v2alpha2", "PodGroup", "tree", spec={"minSubGroup": 2, "subGroups": leaves, "queue": "q"}
    )
    pods = [
        o.make_pod(
            f"t{n}",
            annotations={"pod-group-name": "tree"},
            labels={"kai.scheduler/subgroup-name": f"replica-{n // 2}"},
        )
        for n in range(5)
    ]
    told["a pod group of which two sub-groups must start"] = record([tree], pods, (4, pods))
    told["a pod group whose second sub-group is not whole"] = record([tree], pods[:3], (4, pods[:3]))
    return told


def partly_done() -> dict[str, Recording]:
    """A PodGroup says how many start together, not how many are left."""
    told: dict[str, Recording] = {}
    in_group = {"schedulingGroup": {"podGroupName": "pg"}}
    plugins = {"labels": {"scheduling.x-k8s.io/pod-group": "pg"}}
    kinds: dict[str, tuple[o.Object, dict[str, Any]]] = {
        "of kubernetes": (_group_of(4), {"spec": in_group}),
        "of the scheduler plugins": (
            o.make_object("scheduling.x-k8s.io/v1alpha1", "PodGroup", "pg", spec={"minMember": 4}),
            plugins,
        ),
    }
    for whose, (group, named) in kinds.items():
        job = o.make_job("j", parallelism=4, completions=4, status={"succeeded": 1})
        done = o.make_pod("j-0", job, node="n1", phase="Succeeded", **named)
        lost = o.make_pod("j-1", job, node="n1", phase="Failed", **named)
        living = [o.make_pod(f"j-{n}", job, node="n1", phase="Running", **named) for n in (2, 3)]
        living.append(o.make_pod("j-1-again", job, **named))
        above = [group, job]
        told[f"a pod group {whose}, one pod done and one made anew"] = record(above, [done, lost, *living], (3, living))
        told[f"a pod group {whose}, one pod done and one to be made anew"] = record(
            above, [done, lost, *living[:2]], (3, living[:2])
        )
        bare = [o.make_pod(f"b-{n}", **named) for n in range(3)]
        over = o.make_pod("b-3", node="n1", phase="Succeeded", **named)
        told[f"a pod group {whose} of bare pods, one of them done"] = record([group], [over, *bare], (3, bare))
    last = o.make_job("last", parallelism=2, completions=3, status={"succeeded": 2})
    left = o.make_pod("last-2", last, spec=in_group)
    told["a pod group whose last wave is smaller"] = record([_group_of(2), last], [left], (1, [left]))
    end = o.make_job("end", parallelism=2, completions=6, status={"succeeded": 5})
    left = o.make_pod("end-5", end, spec=in_group)
    told["a pod group larger than every wave, in the last one"] = record([_group_of(6), end], [left], (1, [left]))
    elastic = o.make_job("wide", parallelism=8, completions=8, status={"succeeded": 2})
    few = [o.make_pod(f"wide-{n}", elastic, spec=in_group) for n in range(3)]
    told["a pod group of a wide job does not shrink while enough are left"] = record(
        [_group_of(4), elastic], few, (4, few)
    )
    one = o.make_job("one", parallelism=4, completions=4, status={"succeeded": 1})
    first = [o.make_pod(f"one-{n}", one, spec=in_group) for n in range(3)]
    told["a pod group of two jobs, the second without pods"] = record([_group_of(8), one], first, (7, first))
    entries = [{"name": "left"}, {"name": "right"}, {"name": "left-0", "minMember": 2, "parent": "left"}]
    entries += [{"name": f"right-{n}", "minMember": 2, "parent": "right"} for n in range(2)]
    tree = o.make_object(
        "scheduling.run.ai/v2alpha2", "PodGroup", "tree", spec={"minSubGroup": 2, "subGroups": entries}
    )

    def leaf(name: str, *phases: str) -> list[o.Object]:
        labels, notes = {"kai.scheduler/subgroup-name": name}, {"pod-group-name": "tree"}
        return [o.make_pod(f"{name}-p{n}", phase=p, labels=labels, annotations=notes) for n, p in enumerate(phases)]

    right = leaf("right-0", "Succeeded", "Pending") + leaf("right-1", "Pending", "Pending")
    both = leaf("left-0", "Running", "Running")
    told["a sub-group of which one pod is done"] = record([tree], right + both, (5, right[1:] + both))
    over = leaf("left-0", "Succeeded", "Succeeded")
    told["a branch that is done, beside one that goes on"] = record([tree], right + over, (3, right[1:]))
    return told


def _group_of(minimum: int) -> o.Object:
    policy = {"gang": {"minCount": minimum}}
    return o.make_object("scheduling.k8s.io/v1alpha2", "PodGroup", "pg", spec={"schedulingPolicy": policy})


def named_replicas() -> dict[str, Recording]:
    """Gangs without a number: those above their pods say it."""
    told: dict[str, Recording] = {}
    named: dict[str, Any] = {"annotations": {"kaiwo.ai/gang": "serve"}}
    deployment = o.make_object("apps/v1", "Deployment", "web", spec={"replicas": 4}, **named)
    new = o.make_object("apps/v1", "ReplicaSet", "web-2", deployment, spec={"replicas": 4}, **named)
    pods = [o.make_pod(f"web-2-{n}", new) for n in range(4)]
    told["a deployment that names a gang, partly created"] = record([deployment, new], pods[:2], (4, pods[:2]))
    told["a deployment that names a gang"] = record([deployment, new], pods, (4, pods))
    old = o.make_object("apps/v1", "ReplicaSet", "web-1", deployment, spec={"replicas": 0}, **named)
    leaving = [o.make_pod(f"web-1-{n}", old, node="n1", deletionTimestamp="2026-11-15T10:00:00Z") for n in range(4)]
    told["a deployment made anew, its old pods leaving"] = record([deployment, old, new], leaving + pods, (4, pods))
    desired = {"annotations": {**named["annotations"], "deployment.kubernetes.io/desired-replicas": "4"}}
    halves = [
        o.make_object("apps/v1", "ReplicaSet", f"web-{number}", deployment, spec={"replicas": count}, **desired)
        for number, count in ((3, 3), (4, 2))
    ]
    pods = [o.make_pod(f"web-3-{n}", halves[0], node="n1", phase="Running") for n in range(3)]
    pods += [o.make_pod(f"web-4-{n}", halves[1]) for n in range(2)]
    told["a deployment in the middle of an update"] = record([deployment, *halves], pods, (4, pods))
    for policy, minimum in (("Parallel", 3), ("OrderedReady", 2)):
        spec = {"replicas": 3, "podManagementPolicy": policy}
        stateful = o.make_object("apps/v1", "StatefulSet", "db", spec=spec)
        pods = [o.make_pod(f"db-{n}", stateful, **named) for n in range(2)]
        told[f"a stateful set that names a gang, {policy}"] = record([stateful], pods, (minimum, pods))
    elastic = {"minReplicas": 2, "maxReplicas": 6}
    job = o.make_training_job("PyTorchJob", "grows", {"Worker": 4}, elasticPolicy=elastic)
    pods = o.make_training_pods(job, "worker", 4, **named)
    told["an elastic training job that names a gang"] = record([job], pods, (2, pods))
    three = {"annotations": {**named["annotations"], "kaiwo.ai/min-pods": "3"}}
    pods = o.make_training_pods(job, "worker", 2, **three)
    told["an elastic training job whose gang needs more"] = record([job], pods, (3, pods))
    pods = [o.make_pod(f"bare-{n}", **named) for n in range(2)]
    told["a gang of bare pods without a number"] = record([], pods, (2, pods))
    pods = [o.make_pod(f"bare-{n}", **three) for n in range(2)]
    told["a gang of bare pods of which three must start"] = record([], pods, (3, pods))
    swarm = o.make_object("example.org/v1", "Swarm", "swarm")
    pods = [o.make_pod(f"swarm-{n}", swarm, **named) for n in range(2)]
    told["a gang of a kind that says no number"] = record([swarm], pods, (2, pods))
    pods = [o.make_pod(f"web-3-{n}", {**new, "metadata": {"name": "web-3", "uid": "web-3"}}, **named) for n in (0, 1)]
    told["a gang of a replica set that was not seen"] = record([deployment], pods, (2, pods))
    return told


def halves() -> dict[str, Recording]:
    """One role of an owner names a gang of its own; each half waits for itself alone."""
    told: dict[str, Recording] = {}
    named: dict[str, Any] = {"annotations": {"kaiwo.ai/gang": "w"}}
    template = {"metadata": named}
    job = o.make_training_job("PyTorchJob", "split", {"Master": 1, "Worker": 2})
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = template
    master, workers = o.make_training_pods(job, "master", 1), o.make_training_pods(job, "worker", 2, **named)
    told["a training job whose workers are a gang"] = record([job], [*master, *workers], (1, master), (2, workers))
    told["the same without a worker"] = record([job], [*master, *workers[:1]], (1, master), (2, workers[:1]))
    cluster = o.make_ray_cluster(
        "split",
        {"groupName": "gpu", "replicas": 2, "template": template},
        {"groupName": "cpu", "replicas": 1, "template": {"metadata": {}}},
        headGroupSpec={"template": {"metadata": {}}},
    )
    head = o.make_ray_pods(cluster, "headgroup", 1) + o.make_ray_pods(cluster, "cpu", 1)
    workers = o.make_ray_pods(cluster, "gpu", 2, **named)
    told["a ray cluster with a group that is a gang"] = record([cluster], [*head, *workers], (2, head), (2, workers))
    lws = o.make_lws("split", 3)
    lws["spec"]["leaderWorkerTemplate"] |= {"leaderTemplate": {"metadata": {}}, "workerTemplate": template}
    sets, pods = o.make_lws_replica(lws, 0, 2)
    for pod in pods[1:]:
        pod["metadata"]["annotations"] = pod["metadata"]["annotations"] | named["annotations"]
    told["a leader whose workers are a gang"] = record([lws, *sets], pods, (1, pods[:1]), (2, pods[1:]))
    return told


def nobodys() -> dict[str, Recording]:
    deployment = o.make_object("apps/v1", "Deployment", "web")
    replica_set = o.make_object("apps/v1", "ReplicaSet", "web-1", deployment)
    strange = o.make_object("example.org/v1", "Swarm", "swarm")
    labelled = {"leaderworkerset.sigs.k8s.io/name": "x", "leaderworkerset.sigs.k8s.io/group-index": "0"}
    pods = [o.make_pod("web-1-a", replica_set), o.make_pod("web-1-b", replica_set), o.make_pod("lonely")]
    pods += [o.make_pod("swarm-0", strange), o.make_pod("pretender", labels=labelled)]
    pods.append(o.make_pod("web-1-c", replica_set, labels=labelled))
    job = o.make_job("not-mine", parallelism=2, completions=2)
    guest = o.make_pod("guest")
    guest["metadata"]["ownerReferences"] = [o.refer_to(job, controller=False)]
    jobset = o.make_jobset("js", o.replicated_job("w", 1, 1))
    between = o.make_object("example.org/v1", "Swarm", "between", jobset)
    pods.append(o.make_pod("between-0", between))
    for kind in (("example.org/v1", "TFJob"), ("kubeflow.org/v1", "Notebook"), ("batch.volcano.sh/v1alpha1", "Job")):
        pods.append(o.make_pod(f"other-{kind[1].lower()}", o.make_object(*kind, "other")))
    told = {"pods that stand alone": record([deployment, replica_set, strange, job, jobset, between], [*pods, guest])}
    labels = {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/jobset-uid": jobset["metadata"]["uid"]}
    plain = o.make_job("plain", parallelism=2, completions=2, template_metadata={"labels": labels})
    own = o.make_job_pods(plain, 2)
    told["labels of a jobset on a plain job"] = record([jobset, plain], own, (2, own))
    plain["spec"]["template"]["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": "js"}
    own = o.make_job_pods(plain, 2)
    told["half the labels of a jobset"] = record([jobset], own, (2, own))
    return told
