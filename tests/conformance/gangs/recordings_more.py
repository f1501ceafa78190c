"""More recordings of the project's own: Ray, training jobs and LeaderWorkerSets."""

from tests.conformance.gangs import objects as o
from tests.conformance.gangs.objects import Object
from tests.conformance.gangs.recordings import Recording, record


def ray_clusters() -> dict[str, Recording]:
    told: dict[str, Recording] = {}
    two = {"groupName": "gpu", "replicas": 3, "minReplicas": 1, "maxReplicas": 9}
    cluster = o.make_ray_cluster("ray", two, {"groupName": "cpu", "replicas": 1})
    pods = _ray_pods(cluster, headgroup=1, gpu=3, cpu=1)
    told["the head and the wanted workers"] = record([cluster], pods, (5, pods))
    told["a ray cluster without its head"] = record([cluster], pods[1:], (5, pods[1:]))
    scaled = o.make_ray_cluster("scaled", two, enableInTreeAutoscaling=True)
    pods = _ray_pods(scaled, headgroup=1, gpu=3)
    told["with the autoscaler, the smallest number"] = record([scaled], pods, (2, pods))
    hosts = o.make_ray_cluster("hosts", {"groupName": "tpu", "replicas": 2, "numOfHosts": 4})
    pods = _ray_pods(hosts, headgroup=1, tpu=8)
    told["a replica of several hosts"] = record([hosts], pods, (9, pods))
    limits = o.make_ray_cluster(
        "limits",
        {"groupName": "low", "replicas": 0, "minReplicas": 2},
        {"groupName": "high", "replicas": 9, "maxReplicas": 1},
        {"groupName": "off", "replicas": 5, "suspend": True},
    )
    pods = _ray_pods(limits, headgroup=1, low=2, high=1)
    told["replicas between their limits"] = record([limits], pods, (4, pods))
    service = o.make_object("ray.io/v1", "RayService", "serve")
    old = o.make_ray_cluster("serve-a", {"groupName": "w", "replicas": 1}, owner=service)
    new = o.make_ray_cluster("serve-b", {"groupName": "w", "replicas": 2}, owner=service, api_version="ray.io/v1alpha1")
    first, second = _ray_pods(old, headgroup=1, w=1), _ray_pods(new, headgroup=1, w=2)
    told["two clusters of one service"] = record([service, old, new], first + second, (2, first), (3, second))
    ray_job = o.make_object("ray.io/v1", "RayJob", "rj")
    cluster = o.make_ray_cluster("rj-x", {"groupName": "w", "replicas": 1}, owner=ray_job)
    submitter = o.make_job("rj", ray_job, parallelism=1, completions=1)
    own, submit = _ray_pods(cluster, headgroup=1, w=1), o.make_job_pods(submitter, 1)
    told["the pod that submits is alone"] = record([ray_job, cluster, submitter], own + submit, (2, own), (1, submit))
    cleanup = o.make_job("redis-cleanup", cluster, parallelism=1, completions=1)
    sweep = o.make_job_pods(cleanup, 1)
    told["a job that cleans up is no member"] = record([cluster, cleanup], own + sweep, (2, own), (1, sweep))
    pod_group = o.make_object("scheduling.volcano.sh/v1beta1", "PodGroup", "pg", cluster, spec={"minMember": 2})
    named = {"annotations": {"scheduling.k8s.io/group-name": "pg"}}
    pods = [*o.make_ray_pods(cluster, "headgroup", 1, **named), *o.make_ray_pods(cluster, "w", 1, **named)]
    told["ray with volcano's pod group"] = record([cluster, pod_group], pods, (2, pods))
    return told


def _ray_pods(cluster: Object, **counts: int) -> list[Object]:
    return [pod for group, count in counts.items() for pod in o.make_ray_pods(cluster, group, count)]


def training_jobs() -> dict[str, Recording]:
    told: dict[str, Recording] = {}
    job = o.make_training_job("PyTorchJob", "same", {"Master": None, "Worker": 3})
    twin = o.make_training_job("TFJob", "same", {"Chief": 1, "PS": 1, "Worker": 2})
    torch = o.make_training_pods(job, "master", 1) + o.make_training_pods(job, "worker", 3)
    flow = [
        o.make_pod(f"tf-{role}-{n}", twin, labels={"training.kubeflow.org/replica-type": role})
        for role, count in (("chief", 1), ("ps", 1), ("worker", 2))
        for n in range(count)
    ]
    told["two training jobs of one name"] = record([job, twin], torch + flow, (4, torch), (4, flow))
    told["a training job that is partly created"] = record([job], torch[:2], (4, torch[:2]))
    elastic = o.make_training_job("PyTorchJob", "stretch", {"Worker": 4}, elasticPolicy={"minReplicas": 2})
    pods = o.make_training_pods(elastic, "worker", 4)
    told["an elastic policy gives the minimum"] = record([elastic], pods, (2, pods))
    led = o.make_training_job("PyTorchJob", "led", {"Master": 1, "Worker": 4}, elasticPolicy={"minReplicas": 2})
    pods = o.make_training_pods(led, "master", 1) + o.make_training_pods(led, "worker", 4)
    told["an elastic policy is about the workers"] = record([led], pods, (3, pods))
    policy = {"schedulingPolicy": {"minAvailable": 3}}
    asked = o.make_training_job("TFJob", "asked", {"Worker": 5}, runPolicy=policy)
    pods = o.make_training_pods(asked, "worker", 5)
    told["a scheduling policy gives the minimum"] = record([asked], pods, (3, pods))
    mpi = o.make_training_job("MPIJob", "mpi", {"Launcher": 1, "Worker": 2})
    pods = o.make_training_pods(mpi, "launcher", 1) + o.make_training_pods(mpi, "worker", 2)
    told["launcher and workers start together"] = record([mpi], pods, (3, pods))
    late = o.make_training_job(
        "MPIJob",
        "late",
        {"Launcher": 1, "Worker": 2},
        api_version="kubeflow.org/v2beta1",
        launcherCreationPolicy="WaitForWorkersReady",
    )
    workers = o.make_training_pods(late, "worker", 2)
    told["a launcher that comes later"] = record([late], workers, (2, workers))
    launcher = o.make_job("late-launcher", late, parallelism=1, completions=1)
    both = workers + o.make_training_pods(late, "launcher", 1, owner=launcher)
    told["a launcher in a job of its own"] = record([late, launcher], both, (3, both))
    for kind in ("JAXJob", "PaddleJob", "XGBoostJob"):
        sibling = o.make_training_job(kind, "sibling", {"Worker": 2})
        pods = o.make_training_pods(sibling, "worker", 2)
        told[f"a sibling of the training kinds, {kind}"] = record([sibling], pods[:1], (2, pods[:1]))
    beside = o.make_job("beside", job, parallelism=1, completions=1)
    between = o.make_object("example.org/v1", "Swarm", "between", mpi)
    pods = o.make_job_pods(beside, 1)
    told["objects between a training job and a pod"] = record(
        [job, mpi, beside, between], [*torch, *pods, o.make_pod("swarm", between)], (4, torch), (1, pods)
    )
    return told


def leader_worker_sets() -> dict[str, Recording]:
    told: dict[str, Recording] = {}
    lws = o.make_lws("serve", 3)
    sets, first = o.make_lws_replica(lws, 0, 2)
    more, second = o.make_lws_replica(lws, 1, 2)
    told["each replica is a gang"] = record([lws, *sets, *more[1:]], first + second, (3, first), (3, second))
    told["the set itself was not seen"] = record([], first + second, (3, first), (3, second))
    told["a worker is missing"] = record([lws, *sets], first[:2], (3, first[:2]))
    told["the workers' set was refused"] = record([lws, sets[0]], first[:1], (3, first[:1]))
    told["the leader is missing"] = record([lws, *sets], first[1:], (3, first[1:]))
    quiet, plain = o.make_lws_replica(o.make_lws("quiet", 3), 0, 1)
    for pod in plain:
        del pod["metadata"]["annotations"]
    told["the size stands in the set alone"] = record([o.make_lws("quiet", 3), *quiet], plain, (3, plain))
    told["the size stands nowhere"] = record(quiet, plain[:1], (1, plain[:1]))
    exclusive = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    lws = o.make_lws("alone", 4, annotations=exclusive)
    sets, pods = o.make_lws_replica(lws, 0, 0)
    told["exclusive placement, the leader first"] = record([lws, *sets], pods, (1, pods))
    sets, pods = o.make_lws_replica(lws, 0, 0, node="n1")
    told["exclusive placement, the leader is bound"] = record([lws, *sets], pods, (4, pods))
    sets, pods = o.make_lws_replica(lws, 0, 3, node="n1")
    told["exclusive placement, all are made"] = record([lws, *sets], pods, (4, pods))
    lws = o.make_lws("ready", 2, startupPolicy="LeaderReady")
    sets, pods = o.make_lws_replica(lws, 0, 0, node="n1", phase="Running")
    told["leader ready, not yet"] = record([lws, *sets], pods, (1, pods))
    sets, pods = o.make_lws_replica(lws, 0, 0, node="n1", phase="Running", ready=True)
    told["leader ready, workers due"] = record([lws, *sets], pods, (2, pods))
    lws = o.make_lws("hashed", 2)
    sets, pods = o.make_lws_replica(lws, 0, 1)
    for pod in pods:
        del pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"]
        pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-key"] = "9e13"
    told["a replica that has no number"] = record([lws, *sets], pods, (2, pods))
    small, (_, large) = o.make_lws("shrunk", 2), o.make_lws_replica(o.make_lws("shrunk", 4), 0, 3)
    sets, pods = o.make_lws_replica(small, 0, 1)
    for pod in large[2:]:
        pod["metadata"]["deletionTimestamp"] = "2026-11-15T10:00:00Z"
    told["a replica made anew and smaller, its old pods leaving"] = record([small, *sets], pods + large[2:], (2, pods))
    one = o.make_lws("one", 1)
    sets, pods = o.make_lws_replica(one, 0, 0)
    told["a replica of one pod"] = record([one, *sets], pods, (1, pods))
    return told
