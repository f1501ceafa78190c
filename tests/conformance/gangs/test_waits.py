"""What a gang says while it cannot be tried, and how it becomes roles of a workload."""

from typing import Any

import pytest

from kaiwo.clusters.kubernetes.gangs.gang import Gang, GangRole
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from tests.conformance.gangs import objects as o
from tests.conformance.gangs.replay import replay
from tests.conformance.gangs.stories import STORIES

COMPLETE = (
    "a job runs all its pods at once",
    "each replica is a gang",
    "a replica of one pod",
    "in order, the first wave is the gang",
    "in order, restarted, the old workers leave",
    "a stateful set that names a gang, OrderedReady",
    "a deployment made anew, its old pods leaving",
    "an elastic training job that names a gang",
    "the pod group says how many",
)

SENTENCES = {
    "a job that is partly created keeps its minimum": (
        "Job default/all-at-once waits until its pods exist: 3 of the 4 that start together do"
    ),
    "a jobset of which a job is missing": (
        "JobSet default/js waits until its pods exist: 4 of the 7 that start together do"
        " (leader 1 of 1, workers 3 of 6)"
    ),
    "a ray cluster without its head": (
        "RayCluster default/ray waits until its pods exist: 4 of the 5 that start together do"
        " (head 0 of 1, gpu 3 of 3, cpu 1 of 1)"
    ),
    "a worker is missing": (
        "LeaderWorkerSet default/serve replica 0 waits until its pods exist: 2 of the 3 that start together do"
        " (leader 1 of 1, worker 1 of 2)"
    ),
    "the workers' set was refused": (
        "LeaderWorkerSet default/serve replica 0 waits until its pods exist: 1 of the 3 that start together do"
        " (leader 1 of 1, worker 0 of 2); no StatefulSet serve-0 makes its workers; while it does not come,"
        " `kubectl get events` says why"
    ),
    "a missing pod group, partly created": (
        "PodGroup default/pg does not exist yet, and its pods name it: it says how many of them start together"
    ),
    "an owner that was not seen": ("Job default/training has not been seen yet, so how many pods it has is unknown"),
    "a kueue pod group, partly created": (
        "Kueue pod group default/g waits until its pods exist: 1 of the 3 that start together do"
    ),
    "a pod group whose second sub-group is not whole": (
        "PodGroup default/tree of scheduling.run.ai waits until enough pods of its sub-groups exist"
        " (replica-1 1 of 2, replica-2 0 of 2)"
    ),
    "our own annotation, partly created": (
        "gang default/ours waits until its pods exist: 2 of the 4 that start together do"
    ),
    "a deployment that names a gang, partly created": (
        "gang default/serve waits until its pods exist: 2 of the 4 that start together do"
    ),
    "a gang of bare pods without a number": (
        "gang default/serve does not say how many pods it has: no object makes pod bare-0;"
        " write kaiwo.ai/gang-size on its pods"
    ),
    "a gang of a kind that says no number": (
        "gang default/serve does not say how many pods it has: Kaiwo does not read how many pods"
        " Swarm default/swarm makes; write kaiwo.ai/gang-size on its pods"
    ),
    "a gang of a replica set that was not seen": (
        "gang default/serve does not say how many pods it has: ReplicaSet default/web-3 has not been seen yet,"
        " so how many pods it has is unknown; write kaiwo.ai/gang-size on its pods"
    ),
}


def groups_in(*story: Any) -> list[Gang]:
    groups, unreadable = replay(*story)
    assert unreadable == []
    return groups


def only_group(story: str) -> Gang:
    (group,) = groups_in(STORIES[story]["parents"], STORIES[story]["pods"])
    return group


@pytest.mark.parametrize("story", SENTENCES)
def test_a_gang_that_is_not_complete_says_what_it_waits_for(story: str) -> None:
    assert only_group(story).blocked_by == SENTENCES[story]


@pytest.mark.parametrize("story", COMPLETE)
def test_a_gang_whose_pods_all_exist_waits_for_nothing(story: str) -> None:
    groups = groups_in(STORIES[story]["parents"], STORIES[story]["pods"])
    assert groups
    assert {group.blocked_by for group in groups} == {""}


def test_pods_that_come_later_are_counted_and_not_waited_for() -> None:
    told = {
        "exclusive placement, leaders first": 6,
        "exclusive placement, the leader first": 3,
        "leader ready, not yet": 1,
        "in order, the first wave is the gang": 4,
        "dependencies make waves": 4,
        "a launcher that comes later": 1,
        "a later wave of a job is the gang of its time": 2,
    }
    for story, later in told.items():
        group = only_group(story)
        assert (story, group.later, group.blocked_by) == (story, later, "")


def test_a_suspended_owner_holds_its_pods() -> None:
    job = o.make_job("held", parallelism=2, completions=2, suspend=True)
    cluster = o.make_ray_cluster("held", suspend=True)
    jobset = o.make_jobset("held", o.replicated_job("w", 1, 1), suspend=True)
    (inner,) = o.make_jobset_jobs(jobset, "w")
    training = o.make_training_job("TFJob", "held", {"Worker": 1}, runPolicy={"suspend": True})
    pods = [*o.make_job_pods(job, 2), *o.make_ray_pods(cluster, "headgroup", 1), *o.make_job_pods(inner, 1)]
    groups = groups_in([job, cluster, jobset, inner, training], [*pods, *o.make_training_pods(training, "worker", 1)])
    assert [group.blocked_by for group in groups] == [
        f"{kind} default/held is suspended; resume it" for kind in ("Job", "JobSet", "RayCluster", "TFJob")
    ]


def test_an_owner_that_is_not_as_its_kind_should_be_is_named() -> None:
    job = o.make_job("odd", parallelism="three")
    (group,) = groups_in([job], o.make_job_pods(job, 2))
    assert group.minimum == 2
    assert group.blocked_by.startswith("Job default/odd cannot be read (Expected `int | null`, got `str`")


def test_pods_that_disagree_about_their_number_are_told_so() -> None:
    def pod(name: str, size: str) -> o.Object:
        return o.make_pod(name, annotations={"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": size})

    (group,) = groups_in([], [pod("a", "2"), pod("b", "3")])
    assert (
        group.blocked_by
        == "gang default/g has pods that do not agree on kaiwo.ai/gang-size; write the same number on each"
    )
    for size in ("many", "0", "100001", "2000000000"):
        (group,) = groups_in([], [pod("a", size)])
        words = "gang default/g has a kaiwo.ai/gang-size that is no number from 1 to 100,000; write one"
        assert group.blocked_by == words
    counted: dict[str, Any] = {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}
    (group,) = groups_in([], [o.make_pod("a", **counted)])
    assert group.blocked_by.startswith("Kueue pod group default/g has pods that do not agree on")


def test_a_workload_without_the_named_pod_group_is_told_so() -> None:
    workload = o.make_object("scheduling.k8s.io/v1alpha1", "Workload", "wl", spec={"podGroups": []})
    (group,) = groups_in([workload], [o.make_pod("a", spec={"workloadRef": {"name": "wl", "podGroup": "w"}})])
    assert (
        group.blocked_by
        == "Workload default/wl replica w: the Workload has no such pod group; add it, or name another one"
    )


def test_roles_are_the_roles_of_a_workload() -> None:
    group = only_group("with the autoscaler, the smallest number")
    assert [(role.name, role.count, role.minimum, len(role.members)) for role in group.roles] == [
        ("head", 1, 1, 1),
        ("gpu", 3, 1, 3),
    ]
    group = only_group("a worker is missing")
    assert [(role.name, role.count, role.minimum) for role in group.roles] == [("leader", 1, 1), ("worker", 2, 2)]


def test_one_number_for_a_whole_training_job_is_dealt_to_the_leading_role_first() -> None:
    policy = {"schedulingPolicy": {"minAvailable": 3}}
    job = o.make_training_job("TFJob", "dealt", {"Evaluator": 2, "Worker": 4, "Chief": 1}, runPolicy=policy)
    (group,) = groups_in([job], o.make_training_pods(job, "chief", 1) + o.make_training_pods(job, "worker", 2))
    assert [(role.name, role.count, role.minimum) for role in group.roles] == [
        ("chief", 1, 1),
        ("worker", 4, 2),
        ("evaluator", 2, 0),
    ]
    assert group.blocked_by == ""


def test_a_group_is_a_workload_of_the_model() -> None:
    group = only_group("with the autoscaler, the smallest number")
    workload = as_workload(group)
    assert (workload.pods, sum(role.needed for role in workload.roles)) == (4, group.minimum)


def as_workload(group: Gang) -> Workload:
    def as_role(role: GangRole) -> Role:
        return Role(Request(), name=role.name, count=role.count, minimum=role.minimum)

    return Workload(f"{group.key.namespace}/{group.key.name}", tuple(as_role(role) for role in group.roles))


@pytest.mark.parametrize("story", STORIES)
def test_the_roles_of_a_complete_gang_add_up_to_its_minimum(story: str) -> None:
    for group in groups_in(STORIES[story]["parents"], STORIES[story]["pods"]):
        assert len({role.name for role in group.roles}) == len(group.roles)
        assert all(0 <= role.minimum <= role.count and len(role.members) <= role.count for role in group.roles)
        if not group.blocked_by and not group.subgroups:
            assert sum(role.needed for role in as_workload(group).roles) == group.minimum <= len(group.members)
