"""An event touches the gangs below what changed, and no others."""

from typing import Any

from kaiwo.clusters.kubernetes.gangs import Book, Group, Member, Place, read_member, read_owner
from kaiwo.clusters.kubernetes.gangs.metadata import Owner
from tests.conformance.gangs import objects as o


def pod(raw: o.Object) -> Member:
    found = read_member(raw)
    assert isinstance(found, Member)
    return found


def owner(raw: o.Object) -> Owner:
    found = read_owner(raw)
    assert isinstance(found, Owner)
    return found


def group_at(book: Book, place: Place) -> Group:
    found = book.group(place)
    assert found is not None
    return found


def names(places: set[Place]) -> list[str]:
    return sorted(str(place.key) for place in places)


def test_a_job_that_comes_after_its_pods_moves_them_to_the_jobset() -> None:
    jobset = o.make_jobset("js", o.replicated_job("w", 1, 2))
    (job,) = o.make_jobset_jobs(jobset, "w")
    for label in ("jobset-name", "jobset-uid"):
        del job["metadata"]["labels"][f"jobset.sigs.k8s.io/{label}"]
    book = Book()
    for raw in o.make_job_pods(job, 2):
        assert names(book.put_pod(pod(raw))) == ["Job default/js-w-0"]
    assert names(book.put_owner(owner(job))) == ["Job default/js-w-0", "JobSet default/js"]
    (place,) = book.places()
    assert group_at(book, place).waits == "JobSet default/js has not been seen yet, so how many pods it has is unknown"
    assert names(book.put_owner(owner(jobset))) == ["JobSet default/js"]
    assert group_at(book, place).waits == ""


def test_a_change_that_we_do_not_read_touches_nothing() -> None:
    job = o.make_job("a", parallelism=1, completions=1)
    (raw,) = o.make_job_pods(job, 1)
    book = Book()
    book.put_owner(owner(job))
    book.put_pod(pod(raw))
    job["status"]["active"] = 1
    job["metadata"]["resourceVersion"] = "8"
    raw["status"]["podIP"] = "10.0.0.1"
    assert book.put_owner(owner(job)) == book.put_pod(pod(raw)) == set()


def test_only_the_gang_of_the_pod_is_touched() -> None:
    book = Book()
    jobs = [o.make_job(f"job-{n}", parallelism=2, completions=2) for n in range(50)]
    for job in jobs:
        book.put_owner(owner(job))
        for raw in o.make_job_pods(job, 2):
            book.put_pod(pod(raw))
    (raw,) = o.make_job_pods(jobs[7], 1, node="n1")
    assert names(book.put_pod(pod(raw))) == ["Job default/job-7"]
    assert names(book.remove_pod("default", raw["metadata"]["name"])) == ["Job default/job-7"]
    assert book.place("default", raw["metadata"]["name"]) is None
    assert names(book.remove_owner(owner(jobs[8]))) == ["Job default/job-8"]
    assert book.remove_owner(owner(jobs[8])) == book.remove_pod("default", "nobody") == set()


def test_a_pod_group_that_appears_touches_the_pods_that_name_it() -> None:
    book = Book()
    native: dict[str, Any] = {"spec": {"schedulingGroup": {"podGroupName": "pg"}}}
    book.put_pod(pod(o.make_pod("native", **native)))
    book.put_pod(pod(o.make_pod("plugin", labels={"scheduling.x-k8s.io/pod-group": "pg"})))
    assert [str(place.key) for place in book.places()] == ["PodGroup default/pg"]
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    group = o.make_object("scheduling.k8s.io/v1alpha2", "PodGroup", "pg", spec=spec)
    (place,) = book.put_owner(owner(group))
    assert group_at(book, place).members == ("native",)
    other = owner(o.make_object("scheduling.x-k8s.io/v1alpha1", "PodGroup", "pg", spec={"minMember": 1}))
    (place,) = book.put_owner(other)
    assert group_at(book, place).members == ("plugin",)
    book.remove_owner(other)
    assert book.place("default", "plugin") is None


def test_a_workload_that_appears_touches_the_pods_that_name_it() -> None:
    book = Book()
    (place,) = book.put_pod(pod(o.make_pod("a", spec={"workloadRef": {"name": "wl", "podGroup": "w"}})))
    assert group_at(book, place).waits.startswith("Workload default/wl replica w does not exist yet")
    spec = {"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 1}}}]}
    assert book.put_owner(owner(o.make_object("scheduling.k8s.io/v1alpha1", "Workload", "wl", spec=spec))) == {place}
    assert group_at(book, place).waits == ""


def test_a_pod_that_changes_its_owner_is_heard_of_no_more_by_the_old_one() -> None:
    book = Book()
    old, new = o.make_job("old", parallelism=1), o.make_job("new", parallelism=1)
    book.put_pod(pod(o.make_pod("mover", old)))
    assert names(book.put_pod(pod(o.make_pod("mover", new)))) == ["Job default/new", "Job default/old"]
    assert book.put_owner(owner(old)) == set()


def test_an_object_made_anew_under_its_old_name_is_another_one() -> None:
    book = Book()
    old, new = o.make_job("again", parallelism=1), o.make_job("again", parallelism=2, uid="another")
    book.put_owner(owner(old))
    book.put_pod(pod(o.make_pod("left-over", old)))
    assert names(book.put_owner(owner(new))) == ["Job default/again"]
    (place,) = book.places()
    assert group_at(book, place).waits.startswith("Job default/again has not been seen yet")
    assert book.remove_owner(owner(old)) == set()
    book.put_pod(pod(o.make_pod("fresh", new)))
    assert sorted(group_at(book, place).minimum for place in book.places()) == [1, 2]


def test_a_leader_alone_hears_of_its_workers_set() -> None:
    lws = o.make_lws("serve", 2)
    sets, (leader, _) = o.make_lws_replica(lws, 0, 1)
    book = Book()
    (place,) = book.put_pod(pod(leader))
    assert "no StatefulSet serve-0 makes its workers" in group_at(book, place).waits
    assert book.put_owner(owner(sets[1])) == {place}
    assert "no StatefulSet" not in group_at(book, place).waits


def test_owners_that_own_each_other_are_survived() -> None:
    one, two = o.make_object("example.org/v1", "Loop", "one"), o.make_object("example.org/v1", "Loop", "two")
    one["metadata"]["ownerReferences"], two["metadata"]["ownerReferences"] = [o.refer_to(two)], [o.refer_to(one)]
    book = Book()
    for raw in (one, two):
        book.put_owner(owner(raw))
    assert book.put_pod(pod(o.make_pod("dizzy", one))) == set()
    assert (
        book.put_owner(owner({**one, "metadata": {**one["metadata"], "annotations": {"kaiwo.ai/gang": "g"}}})) != set()
    )
