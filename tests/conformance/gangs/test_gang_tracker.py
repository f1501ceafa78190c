"""An event touches the gangs below what changed, and no others."""

from typing import Any

from kaiwo.clusters.kubernetes.gangs.gang import Gang
from kaiwo.clusters.kubernetes.gangs.gang_tracker import GangTracker
from kaiwo.clusters.kubernetes.gangs.metadata import Owner
from kaiwo.clusters.kubernetes.gangs.ownership import Member
from kaiwo.clusters.kubernetes.gangs.registry import GangId, read_owner
from tests.conformance.gangs import objects as o
from tests.conformance.gangs.replay import read_member


def pod(raw: o.Object) -> Member:
    found = read_member(raw)
    assert isinstance(found, Member)
    return found


def owner(raw: o.Object) -> Owner:
    found = read_owner(raw)
    assert isinstance(found, Owner)
    return found


def group_at(book: GangTracker, place: GangId) -> Gang:
    found = book.gang(place)
    assert found is not None
    return found


def names(places: set[GangId]) -> list[str]:
    return sorted(str(place.key) for place in places)


def test_a_job_that_comes_after_its_pods_moves_them_to_the_jobset() -> None:
    jobset = o.make_jobset("js", o.replicated_job("w", 1, 2))
    (job,) = o.make_jobset_jobs(jobset, "w")
    for label in ("jobset-name", "jobset-uid"):
        del job["metadata"]["labels"][f"jobset.sigs.k8s.io/{label}"]
    book = GangTracker()
    for raw in o.make_job_pods(job, 2):
        assert names(book.upsert_pod(pod(raw))) == ["Job default/js-w-0"]
    assert names(book.upsert_owner(owner(job))) == ["Job default/js-w-0", "JobSet default/js"]
    (place,) = book.gang_ids()
    assert (
        group_at(book, place).blocked_by
        == "JobSet default/js has not been seen yet, so how many pods it has is unknown"
    )
    assert names(book.upsert_owner(owner(jobset))) == ["JobSet default/js"]
    assert group_at(book, place).blocked_by == ""


def test_a_change_that_we_do_not_read_touches_nothing() -> None:
    job = o.make_job("a", parallelism=1, completions=1)
    (raw,) = o.make_job_pods(job, 1)
    book = GangTracker()
    book.upsert_owner(owner(job))
    book.upsert_pod(pod(raw))
    job["status"]["active"] = 1
    job["metadata"]["resourceVersion"] = "8"
    raw["status"]["podIP"] = "10.0.0.1"
    assert book.upsert_owner(owner(job)) == book.upsert_pod(pod(raw)) == set()


def test_only_the_gang_of_the_pod_is_touched() -> None:
    book = GangTracker()
    jobs = [o.make_job(f"job-{n}", parallelism=2, completions=2) for n in range(50)]
    for job in jobs:
        book.upsert_owner(owner(job))
        for raw in o.make_job_pods(job, 2):
            book.upsert_pod(pod(raw))
    (raw,) = o.make_job_pods(jobs[7], 1, node="n1")
    assert names(book.upsert_pod(pod(raw))) == ["Job default/job-7"]
    assert names(book.delete_pod("default", raw["metadata"]["name"])) == ["Job default/job-7"]
    assert book.gang_of("default", raw["metadata"]["name"]) is None
    assert names(book.delete_owner(owner(jobs[8]))) == ["Job default/job-8"]
    assert book.delete_owner(owner(jobs[8])) == book.delete_pod("default", "nobody") == set()


def test_a_pod_group_that_appears_touches_the_pods_that_name_it() -> None:
    book = GangTracker()
    native: dict[str, Any] = {"spec": {"schedulingGroup": {"podGroupName": "pg"}}}
    book.upsert_pod(pod(o.make_pod("native", **native)))
    book.upsert_pod(pod(o.make_pod("plugin", labels={"scheduling.x-k8s.io/pod-group": "pg"})))
    assert [str(place.key) for place in book.gang_ids()] == ["PodGroup default/pg"]
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    group = o.make_object("scheduling.k8s.io/v1alpha2", "PodGroup", "pg", spec=spec)
    (place,) = book.upsert_owner(owner(group))
    assert group_at(book, place).members == ("native",)
    other = owner(o.make_object("scheduling.x-k8s.io/v1alpha1", "PodGroup", "pg", spec={"minMember": 1}))
    (place,) = book.upsert_owner(other)
    assert group_at(book, place).members == ("plugin",)
    book.delete_owner(other)
    assert book.gang_of("default", "plugin") is None


def test_a_workload_that_appears_touches_the_pods_that_name_it() -> None:
    book = GangTracker()
    (place,) = book.upsert_pod(pod(o.make_pod("a", spec={"workloadRef": {"name": "wl", "podGroup": "w"}})))
    assert group_at(book, place).blocked_by.startswith("Workload default/wl replica w does not exist yet")
    spec = {"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 1}}}]}
    assert book.upsert_owner(owner(o.make_object("scheduling.k8s.io/v1alpha1", "Workload", "wl", spec=spec))) == {place}
    assert group_at(book, place).blocked_by == ""


def test_a_pod_that_changes_its_owner_is_heard_of_no_more_by_the_old_one() -> None:
    book = GangTracker()
    old, new = o.make_job("old", parallelism=1), o.make_job("new", parallelism=1)
    book.upsert_pod(pod(o.make_pod("mover", old)))
    assert names(book.upsert_pod(pod(o.make_pod("mover", new)))) == ["Job default/new", "Job default/old"]
    assert book.upsert_owner(owner(old)) == set()


def test_an_object_made_anew_under_its_old_name_is_another_one() -> None:
    book = GangTracker()
    old, new = o.make_job("again", parallelism=1), o.make_job("again", parallelism=2, uid="another")
    book.upsert_owner(owner(old))
    book.upsert_pod(pod(o.make_pod("left-over", old)))
    assert names(book.upsert_owner(owner(new))) == ["Job default/again"]
    (place,) = book.gang_ids()
    assert group_at(book, place).blocked_by.startswith("Job default/again has not been seen yet")
    assert book.delete_owner(owner(old)) == set()
    book.upsert_pod(pod(o.make_pod("fresh", new)))
    assert sorted(group_at(book, place).minimum for place in book.gang_ids()) == [1, 2]


def test_a_leader_alone_hears_of_its_workers_set() -> None:
    lws = o.make_lws("serve", 2)
    sets, (leader, _) = o.make_lws_replica(lws, 0, 1)
    book = GangTracker()
    (place,) = book.upsert_pod(pod(leader))
    assert "no StatefulSet serve-0 makes its workers" in group_at(book, place).blocked_by
    assert book.upsert_owner(owner(sets[1])) == {place}
    assert "no StatefulSet" not in group_at(book, place).blocked_by


def test_owners_that_own_each_other_are_survived() -> None:
    one, two = o.make_object("example.org/v1", "Loop", "one"), o.make_object("example.org/v1", "Loop", "two")
    one["metadata"]["ownerReferences"], two["metadata"]["ownerReferences"] = [o.refer_to(two)], [o.refer_to(one)]
    book = GangTracker()
    for raw in (one, two):
        book.upsert_owner(owner(raw))
    assert book.upsert_pod(pod(o.make_pod("dizzy", one))) == set()
    assert (
        book.upsert_owner(owner({**one, "metadata": {**one["metadata"], "annotations": {"kaiwo.ai/gang": "g"}}}))
        != set()
    )
