"""Recordings of the project's own, one story each: what stands above the pods, the pods, and the gangs expected.

They have the shape of the recordings made of real controllers, and cover every kind with its traps.
"""

from typing import Any

from tests.conformance.gangs import objects as o
from tests.conformance.gangs.objects import Object

Recording = dict[str, Any]
IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}


def record(parents: list[Object], pods: list[Object], *groups: tuple[int, list[Object]]) -> Recording:
    """`groups`: the minimum and the pods of each gang expected."""
    listed = [
        {"name": f"gang-{number}", "min_members": minimum, "pods": [pod["metadata"]["name"] for pod in members]}
        for number, (minimum, members) in enumerate(groups)
    ]
    return {"parents": parents, "pods": pods, "pods_total": len(pods), "expected_gang": {"groups": listed}}


def jobs() -> dict[str, Recording]:
    told: dict[str, Recording] = {}
    job = o.make_job("all-at-once", parallelism=4, completions=4)
    pods = o.make_job_pods(job, 4)
    told["a job runs all its pods at once"] = record([job], pods, (4, pods))
    told["a job that is partly created keeps its minimum"] = record([job], pods[:3], (4, pods[:3]))
    job = o.make_job("waves", parallelism=2, completions=10, status={"succeeded": 6})
    done, wave = o.make_job_pods(job, 6, phase="Succeeded", node="n1"), o.make_job_pods(job, 2, first=6)
    told["a later wave of a job is the gang of its time"] = record([job], done + wave, (2, wave))
    job = o.make_job("last-wave", parallelism=4, completions=10, status={"succeeded": 9})
    pods = o.make_job_pods(job, 1, first=9)
    told["the last wave may be smaller"] = record([job], pods, (1, pods))
    job = o.make_job("few", parallelism=8, completions=3)
    pods = o.make_job_pods(job, 3)
    told["fewer completions than parallelism"] = record([job], pods, (3, pods))
    job = o.make_job("queue-of-work", parallelism=3)
    pods = o.make_job_pods(job, 3)
    told["a work queue without completions"] = record([job], pods, (3, pods))
    ending = [*o.make_job_pods(job, 1, phase="Succeeded"), *o.make_job_pods(job, 2, first=1)]
    told["a work queue makes no pod anew after a success"] = record([job], ending, (2, ending[1:]))
    job = o.make_job("bare")
    pods = o.make_job_pods(job, 1)
    told["a job without numbers has one pod"] = record([job], pods, (1, pods))
    job = o.make_job("elastic", parallelism=6, annotations={"kueue.x-k8s.io/job-min-parallelism": "2"})
    pods = o.make_job_pods(job, 6)
    told["kueue's smallest parallelism"] = record([job], pods, (2, pods))
    job = o.make_job("ours", parallelism=6, completions=6, annotations={"kaiwo.ai/min-pods": "3"})
    pods = o.make_job_pods(job, 6)
    told["our own least number of pods"] = record([job], pods, (3, pods))
    notes = {"annotations": {"kaiwo.silogen.ai/min-pods": "2"}}
    job = o.make_job("template", template_metadata=notes, parallelism=4, annotations={"kaiwo.ai/min-pods": "3"})
    pods = o.make_job_pods(job, 4)
    told["the template's word counts before the job's"] = record([job], pods, (2, pods))
    job = o.make_object("batch/v1", "Job", "no-spec")
    pods = [o.make_pod("no-spec-a", job)]
    told["a job without a spec has one pod"] = record([job], pods, (1, pods))
    job = o.make_job("loose", parallelism=3, completions=3, annotations={"kaiwo.ai/gang": "false"})
    pods = o.make_job_pods(job, 3)
    told["a job that says it is no gang"] = record([job], pods, (1, pods))
    job = o.make_job("replaced", parallelism=2, completions=2)
    gone = o.make_job_pods(job, 1, deletionTimestamp="2026-01-01T00:00:00Z", node="n1")
    failed = o.make_job_pods(job, 1, first=7, phase="Failed", node="n1")
    living = o.make_job_pods(job, 2, first=1)
    told["a pod that leaves or failed is no member"] = record([job], gone + failed + living, (2, living))
    job = o.make_job("indexes", parallelism=4, completions=4, status={"failedIndexes": "0,2-2,x,5-"})
    pods = o.make_job_pods(job, 2)
    told["indexes that failed for good are not waited for"] = record([job], pods, (2, pods))
    kaiwo_job = o.make_object("kaiwo.silogen.ai/v1alpha1", "KaiwoJob", "training")
    job = o.make_job("training", kaiwo_job, parallelism=2, completions=2)
    pods = o.make_job_pods(job, 2)
    told["a kaiwojob's pods are its job's"] = record([kaiwo_job, job], pods, (2, pods))
    told["an owner that was not seen"] = record([], pods, (2, pods))
    return told


def jobsets() -> dict[str, Recording]:
    told: dict[str, Recording] = {}
    jobset = o.make_jobset(
        "js",
        o.replicated_job("leader", 1, 1),
        o.replicated_job("workers", 2, 3),
        startupPolicy={"startupPolicyOrder": "AnyOrder"},
    )
    made = o.make_jobset_jobs(jobset, "leader") + o.make_jobset_jobs(jobset, "workers")
    pods = [pod for job in made for pod in o.make_job_pods(job, job["spec"]["parallelism"])]
    told["all pods of a jobset are one gang"] = record([jobset, *made], pods, (7, pods))
    told["a jobset of which a job is missing"] = record([jobset, *made[:2]], pods[:4], (7, pods[:4]))
    told["a jobset of which a whole role is missing"] = record([jobset, made[0]], pods[:1], (7, pods[:1]))
    told["the jobs of a jobset were not seen"] = record([jobset], pods, (7, pods))
    told |= _ordered_jobsets() | _chained_jobsets() | _exclusive_jobsets()
    return told | _restarted_jobsets() | _jobsets_with_other_gangs()


def _ordered_jobsets() -> dict[str, Recording]:
    told: dict[str, Recording] = {}
    in_order = o.make_jobset(
        "ordered",
        o.replicated_job("driver", 1, 1),
        o.replicated_job("workers", 1, 4),
        **IN_ORDER,
    )
    driver, workers = o.make_jobset_jobs(in_order, "driver"), o.make_jobset_jobs(in_order, "workers")
    first, second = o.make_job_pods(driver[0], 1), o.make_job_pods(workers[0], 4)
    told["in order, the first wave is the gang"] = record([in_order, *driver], first, (1, first))
    bound = o.make_job_pods(driver[0], 1, node="n1", phase="Running", ready=True)
    both = [in_order, *driver, *workers]
    told["in order, the second wave joins the first"] = record(both, bound + second, (5, bound + second))
    told["in order, the second wave is partly made"] = record(both, bound + second[:2], (5, bound + second[:2]))
    started = {**in_order, "status": {"replicatedJobsStatus": [{"name": "driver", "ready": 1}]}}
    told["in order, the second wave is due"] = record([started, *driver], bound, (5, bound))
    twins = o.make_jobset("twins", o.replicated_job("driver", 1, 1), o.replicated_job("workers", 2, 2), **IN_ORDER)
    driver, (early, _) = o.make_jobset_jobs(twins, "driver"), o.make_jobset_jobs(twins, "workers")
    anew, there = o.make_job_pods(driver[0], 1), o.make_job_pods(early, 2, node="n1")
    told["in order, the driver is lost before all workers are made"] = record(
        [twins, *driver, early], anew + there, (3, anew + there)
    )
    begun = {"replicatedJobsStatus": [{"name": "many", "ready": 1, "succeeded": 1, "failed": 1}]}
    roles = (o.replicated_job("many", 3, 1), o.replicated_job("last", 1, 2))
    ordered = o.make_jobset("begun", *roles, **IN_ORDER, status=begun)
    made = o.make_jobset_jobs(ordered, "many")
    one, two, three = (
        o.make_job_pods(job, 1, phase=phase, node="n1")
        for job, phase in zip(made, ("Running", "Succeeded", "Failed"), strict=True)
    )
    told["in order, what failed has started too"] = record([ordered, *made], one + two + three, (4, one))
    return told


def _chained_jobsets() -> dict[str, Recording]:
    told: dict[str, Recording] = {}
    chain = o.make_jobset(
        "chain",
        o.replicated_job("init", 1, 1),
        o.replicated_job("launcher", 1, 1, dependsOn=[{"name": "init", "status": "Complete"}]),
        o.replicated_job("node", 2, 2, dependsOn=[{"name": "launcher", "status": "Ready"}]),
        status={"replicatedJobsStatus": [{"name": "init", "succeeded": 1}, {"name": "launcher", "ready": 0}]},
    )
    init, launcher = o.make_jobset_jobs(chain, "init"), o.make_jobset_jobs(chain, "launcher")
    done, now = o.make_job_pods(init[0], 1, phase="Succeeded", node="n1"), o.make_job_pods(launcher[0], 1)
    told["dependencies make waves"] = record([chain, *init, *launcher], done + now, (1, now))
    running = {**chain, "status": {"replicatedJobsStatus": [{"name": "init", "ready": 1}]}}
    first = o.make_job_pods(init[0], 1, phase="Running", node="n1", ready=True)
    told["a dependency that runs is not complete"] = record([running, *init], first, (1, first))
    ready = {"replicatedJobsStatus": [{"name": "init", "succeeded": 1}, {"name": "launcher", "ready": 1}]}
    bound = o.make_job_pods(launcher[0], 1, phase="Running", node="n1", ready=True)
    told["the last wave of a chain is due"] = record([{**chain, "status": ready}, *init, *launcher], bound, (5, bound))
    return told


def _exclusive_jobsets() -> dict[str, Recording]:
    told: dict[str, Recording] = {}
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    jobset = o.make_jobset("slices", o.replicated_job("slice", 2, 4), annotations=exclusive)
    one, two = o.make_jobset_jobs(jobset, "slice")
    leaders = o.make_job_pods(one, 1) + o.make_job_pods(two, 1)
    told["exclusive placement, leaders first"] = record([jobset, one, two], leaders, (2, leaders))
    led = o.make_job_pods(one, 1, node="n1") + o.make_job_pods(one, 3, first=1) + o.make_job_pods(two, 1)
    told["exclusive placement, one leader bound"] = record([jobset, one, two], led, (5, led))
    due = o.make_job_pods(one, 1, node="n1") + o.make_job_pods(two, 1, node="n2")
    told["exclusive placement, followers due"] = record([jobset, one, two], due, (8, due))
    whole = led + o.make_job_pods(two, 3, first=1)
    told["exclusive placement, all made"] = record([jobset, one, two], whole, (8, whole))
    told["exclusive placement, one leader is missing"] = record([jobset, one], leaders[:1], (2, leaders[:1]))
    lost = o.make_job_pods(one, 1, node="n1", phase="Failed", first=0)
    lost[0]["metadata"]["name"] = "lost"
    replaced = lost + leaders
    told["exclusive placement, a leader is made anew"] = record([jobset, one, two], replaced, (2, leaders))
    others = o.make_job_pods(one, 2, first=2, node="n1", phase="Running") + o.make_job_pods(two, 4, node="n2")
    bereft = leaders[:1] + others
    told["exclusive placement, a leader and a follower are lost"] = record([jobset, one, two], bereft, (7, bereft))
    told["exclusive placement, no leader among followers"] = record([jobset, one, two], others, (7, others))
    over = o.make_job_pods(one, 1, node="n1", phase="Succeeded")
    told["exclusive placement, a leader is done"] = record([jobset, one, two], over + others, (6, others))
    labelled = {**exclusive, "alpha.jobset.sigs.k8s.io/node-selector": "true"}
    jobset = o.make_jobset("labelled", o.replicated_job("slice", 1, 3), annotations=labelled)
    (job,) = o.make_jobset_jobs(jobset, "slice")
    told["exclusive placement by node selector makes all at once"] = record(
        [jobset, job], o.make_job_pods(job, 1), (3, o.make_job_pods(job, 1))
    )
    jobset = o.make_jobset(
        "partly", o.replicated_job("driver", 1, 2), o.replicated_job("slice", 1, 4, annotations=exclusive)
    )
    made = o.make_jobset_jobs(jobset, "driver") + o.make_jobset_jobs(jobset, "slice")
    pods = o.make_job_pods(made[0], 2) + o.make_job_pods(made[1], 1)
    told["one replicated job is placed exclusively"] = record([jobset, *made], pods, (3, pods))
    return told


def _restarted_jobsets() -> dict[str, Recording]:
    told: dict[str, Recording] = {}
    jobset = o.make_jobset("again", o.replicated_job("workers", 1, 3))
    (old,), (new,) = o.make_jobset_jobs(jobset, "workers"), o.make_jobset_jobs(jobset, "workers", attempt=1)
    failed, pods = o.make_job_pods(old, 3, phase="Succeeded", node="n1"), o.make_job_pods(new, 3)
    told["a restart does not count the attempt before"] = record([jobset, new], failed + pods, (3, pods))
    alone = {"jobset.sigs.k8s.io/restart-attempt": "0", "jobset.sigs.k8s.io/job-restart-attempt": "1"}
    pods = o.make_job_pods(new, 3, labels=alone)
    told["a job that is restarted alone"] = record([jobset, new], pods + failed, (3, pods))
    jobset = o.make_jobset(
        "anew",
        o.replicated_job("driver", 1, 1),
        o.replicated_job("worker", 2, 4),
        **IN_ORDER,
    )
    (new,), old = o.make_jobset_jobs(jobset, "driver", attempt=1), o.make_jobset_jobs(jobset, "worker")
    pods = o.make_job_pods(new, 1)
    for fate, of_it in (("leave", {"deletionTimestamp": "2026-11-15T10:00:00Z"}), ("failed", {"phase": "Failed"})):
        before = [pod for job in old for pod in o.make_job_pods(job, 4, node="n9", **of_it)]
        told[f"in order, restarted, the old workers {fate}"] = record([jobset, new, *old], [*before, *pods], (1, pods))
    chained = o.replicated_job("train", 2, 2, dependsOn=[{"name": "prepare", "status": "Complete"}])
    jobset = o.make_jobset("chain", o.replicated_job("prepare", 1, 2), chained)
    (new,), old = o.make_jobset_jobs(jobset, "prepare", attempt=1), o.make_jobset_jobs(jobset, "train")
    pods, leaving = o.make_job_pods(new, 2), {"node": "n9", "deletionTimestamp": "2026-11-15T10:00:00Z"}
    before = [pod for job in old for pod in o.make_job_pods(job, 2, **leaving)]
    told["chained, restarted, the old ones leave"] = record([jobset, new, *old], [*before, *pods], (2, pods))
    done = {"replicatedJobsStatus": [{"name": "prepare", "succeeded": 2}, {"name": "train", "ready": 0}]}
    jobset = o.make_jobset("half", o.replicated_job("prepare", 3, 2), o.replicated_job("train", 1, 2), status=done)
    (first, *_), (train,) = o.make_jobset_jobs(jobset, "prepare"), o.make_jobset_jobs(jobset, "train")
    over, pods = o.make_job_pods(first, 2, phase="Succeeded", node="n1"), o.make_job_pods(train, 2)
    told["jobs that are done are not waited for"] = record([jobset, train], over + pods, (4, pods))
    told["jobs that are done, their pods gone"] = record([jobset, train], pods, (4, pods))
    return told


def _jobsets_with_other_gangs() -> dict[str, Recording]:
    told: dict[str, Recording] = {}
    named = {"schedulingGroup": {"podGroupName": "pg"}}
    jobset = o.make_jobset("mixed", o.replicated_job("a", 1, 2), o.replicated_job("b", 2, 2, template_spec=named))
    made = o.make_jobset_jobs(jobset, "a") + o.make_jobset_jobs(jobset, "b")
    own, other = o.make_job_pods(made[0], 2), o.make_job_pods(made[1], 2) + o.make_job_pods(made[2], 2)
    told["a replicated job that names a pod group"] = record([jobset, *made], own + other, (2, own), (4, other))
    policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    group = o.make_object("scheduling.k8s.io/v1alpha2", "PodGroup", "pg", spec=policy)
    told["the pod group says how many"] = record([jobset, group, *made], own + other, (2, own), (3, other))
    told["a missing pod group, partly created"] = record([jobset, *made[1:]], other[:3], (4, other[:3]))
    return told
