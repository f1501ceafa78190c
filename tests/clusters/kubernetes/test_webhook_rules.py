"""What webhooks say about single objects: no API server is needed to know."""

import base64
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from kaiwo.clusters.kubernetes.webhooks.admission_review import AdmissionVerdict, read_review, write_review
from kaiwo.clusters.kubernetes.webhooks.review_queue import review_queue
from kaiwo.clusters.kubernetes.webhooks.review_workload import review_workload
from kaiwo.clusters.kubernetes.webhooks.submitting_user import Requester, WebhookPolicy
from kaiwo.clusters.kubernetes.webhooks.workload_defaults import queue_of
from kaiwo.clusters.kubernetes.webhooks.workload_objects import read_workload_object
from kaiwo.model.errors import ConfigError
from kaiwo.model.queue import UNBOUNDED_DEFAULT_QUEUE, Queue, QueueAmounts
from tests.clusters.kubernetes.installed_webhooks import pod, queue
from tests.waiting import run

OURS = "kaiwo-scheduler"
POLICY = WebhookPolicy(OURS)
TRUSTED = frozenset(("system:kube-controller-manager", "kube-system:job-controller", "jobset-system:manager"))
TRUSTING = WebhookPolicy(OURS, trusted_controllers=TRUSTED)
QUEUES = {"default": UNBOUNDED_DEFAULT_QUEUE}
Json = dict[str, Any]


def template(**metadata: Any) -> Json:
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}


# Where pod templates lie in the kinds that people bring.
KINDS = {
    ("batch", "Job"): ({"template": template()}, ["/spec/template"]),
    ("batch", "CronJob"): ({"jobTemplate": {"spec": {"template": template()}}}, ["/spec/jobTemplate/spec/template"]),
    ("jobset.x-k8s.io", "JobSet"): (
        {"replicatedJobs": [{"template": {"spec": {"template": template()}}} for _ in range(2)]},
        [f"/spec/replicatedJobs/{number}/template/spec/template" for number in range(2)],
    ),
    ("kubeflow.org", "PyTorchJob"): (
        {"pytorchReplicaSpecs": {role: {"template": template()} for role in ("Master", "Worker")}},
        [f"/spec/pytorchReplicaSpecs/{role}/template" for role in ("Master", "Worker")],
    ),
    ("ray.io", "RayCluster"): (
        {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [{"template": template()}]},
        ["/spec/headGroupSpec/template", "/spec/workerGroupSpecs/0/template"],
    ),
    ("ray.io", "RayJob"): (
        {"rayClusterSpec": {"headGroupSpec": {"template": template()}}},
        ["/spec/rayClusterSpec/headGroupSpec/template"],
    ),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        {"leaderWorkerTemplate": {"leaderTemplate": template(), "workerTemplate": template()}},
        [f"/spec/leaderWorkerTemplate/{role}Template" for role in ("leader", "worker")],
    ),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[1])
def test_every_template_of_every_kind_gets_our_scheduler(kind: tuple[str, str]) -> None:
    group, name = kind
    spec, paths = KINDS[kind]
    document = {"metadata": {"name": "w", "annotations": {"kaiwo.ai/queue": "default"}}, "spec": spec}
    verdict = review(document, name, group)
    given = {step["path"]: step["value"] for step in verdict.patch}
    assert [path for path in given if path.endswith("schedulerName")] == [
        f"{path}/spec/schedulerName" for path in paths
    ]
    assert given["/metadata/annotations/kaiwo.ai~1user"] == "alice"
    in_templates = [path for path in given if path.startswith("/spec") and "annotations" in path]
    assert bool(in_templates) == (group == "batch")  # other kinds may prune them there


def test_a_slip_in_a_template_is_a_slip() -> None:
    spec = {"template": template(annotations={"kaiwo.ai/gpu-fraction": "2"})}
    assert 'kaiwo.ai/gpu-fraction is "2"' in review({"metadata": {"name": "w"}, "spec": spec}, "Job", "batch").refusal


def test_a_share_beside_whole_gpus_is_warned_about() -> None:
    asks = {"resources": {"limits": {"amd.com/gpu": "1"}, "requests": {"amd.com/gpu": "1"}}}
    spec = {"containers": [{"name": "c", **asks}]}
    document = {"metadata": {"name": "w", "annotations": {"kaiwo.ai/gpu-fraction": "0.5"}}, "spec": spec}
    verdict = review(document | {"spec": spec | {"schedulerName": OURS}}, "Pod")
    assert verdict.refusal == ""
    assert any("it gets 1 whole; remove amd.com/gpu to share" in warning for warning in verdict.warnings)


def test_whole_gpus_that_cannot_be_shared_are_warned_about_with_the_way_to_share_them() -> None:
    asks = {"resources": {"limits": {"amd.com/gpu": "2"}, "requests": {"amd.com/gpu": "2"}}}
    spec = {"containers": [{"name": "c", **asks}], "schedulerName": OURS}
    notes = {"kaiwo.ai/gpu-sharing": "true"}
    verdict = review({"metadata": {"name": "w", "annotations": notes}, "spec": spec}, "Pod")
    (warning,) = verdict.warnings
    assert verdict.refusal == ""
    assert "has no effect on amd.com/gpu: the kubelet allocates whole GPUs, and the pod gets 2 alone" in warning
    assert 'write kaiwo.ai/gpu-devices: "2" and the resource kaiwo.ai/gpu-share: 2 instead' in warning

    spec["containers"] = [{"name": "c", "resources": {"limits": {"kaiwo.ai/gpu-share": "2"}}}]
    notes["kaiwo.ai/gpu-devices"] = "2"
    (warning,) = review({"metadata": {"name": "w", "annotations": notes}, "spec": spec}, "Pod").warnings
    assert "gpu-sharing counts as 0.5 of each of 2 GPUs: up to 2 such workloads share one" in warning


def test_sharing_that_contradicts_itself_is_refused_at_the_door() -> None:
    notes = {"kaiwo.ai/gpu-sharing": "true", "kaiwo.ai/gpu-partition": "CPX"}
    spec = {"containers": [{"name": "c"}], "schedulerName": OURS}
    verdict = review({"metadata": {"name": "w", "annotations": notes}, "spec": spec}, "Pod")
    assert "kaiwo.ai/gpu-partition asks for partitions, which are not shared" in verdict.refusal


def test_nobody_hides_behind_a_template() -> None:
    for prefix in ("kaiwo.ai/", "kaiwo.silogen.ai/"):
        notes = {"kaiwo.ai/type": "batch", prefix + "user": "boss"}
        spec = {"template": template(annotations=notes)}
        assert "but alice submits it" in review({"metadata": {"name": "w"}, "spec": spec}, "Job", "batch").refusal


@pytest.mark.parametrize(
    ("name", "is_controller"),
    [
        ("system:serviceaccount:kube-system:job-controller", True),
        ("system:serviceaccount:jobset-system:manager", True),
        ("system:serviceaccount:other:manager", False),  # of another namespace, but not in the list
        ("system:kube-controller-manager", True),
        ("system:serviceaccount:n:builder", False),  # a tenant's own
        ("alice", False),
    ],
)
def test_who_is_a_controller(name: str, is_controller: bool) -> None:
    owned = pod("p", "n", ownerReferences=[{"controller": True, "kind": "Job", "name": "j", "uid": "u"}])
    work = read_workload_object(msgspec.json.encode(owned), "Pod", "", "n")
    assert Requester(name).created_by_controller(work, TRUSTING) is is_controller
    assert not Requester(name).created_by_controller(
        read_workload_object(msgspec.json.encode(pod("p", "n")), "Pod", "", "n"), TRUSTING
    )


def test_a_queue_for_this_namespace_is_its_default() -> None:
    queues = QUEUES | {
        "all": Queue("all", namespaces=("a", "b")),
        "a": Queue("a", parent="all", namespaces=("a",)),
        "b1": Queue("b1", parent="all", namespaces=("b",)),
        "b2": Queue("b2", parent="all", namespaces=("b",)),
    }
    assert [queue_of(name, queues) for name in ("a", "b", "c")] == ["a", "default", "default"]


def test_a_priority_above_the_maximum_of_its_queue_is_refused_and_pods_of_controllers_are_not() -> None:
    def asking(number: int) -> Json:
        return pod("p", "n", annotations={"kaiwo.ai/priority": str(number)})

    refusal = review(asking(1_000_000_000), "Pod").refusal
    assert "asks for priority 1000000000, and queue default allows at most 1000, as every queue" in refusal
    assert not review(asking(1000), "Pod").refusal
    with_class = asking(5000)
    with_class["spec"]["priorityClassName"] = "gold"
    assert not review(with_class, "Pod").refusal, "the scheduler holds it to what the class is worth"
    capped = QUEUES | {"lab": Queue("lab", max_priority=7), "team": Queue("team", "lab")}
    with_class["metadata"]["annotations"]["kaiwo.ai/queue"] = "team"
    refusal = review_workload(question(with_class, "Pod"), capped, POLICY, True).refusal
    assert refusal.endswith(
        "asks for priority 5000, and queue lab allows at most 7 in queue team; lower it, or ask an administrator to "
        "raise spec.maxPriority of lab"
    )
    owned = pod("p", "n", ownerReferences=[{"controller": True, "kind": "Job", "name": "j", "uid": "u"}])
    owned["metadata"]["annotations"] = {"kaiwo.ai/priority": "5000"}
    controller = {"username": "system:serviceaccount:kube-system:job-controller"}
    by_controller = question(owned, "Pod", userInfo=controller)
    found = review_workload(by_controller, QUEUES, TRUSTING, True)
    assert not found.refusal
    assert "its priority counts as the maximum" in found.warnings[-1]


def test_the_memory_of_a_share_is_held_to_the_bound_of_its_queue() -> None:
    queues = QUEUES | {"lab": Queue("lab", max_share_mib=1000), "team": Queue("team", "lab")}
    for amount, words in (("1000", ""), ("1001", "allows at most 1000 MiB for one share; ask for less, or ask")):
        asking = pod("p", "n")
        asking["metadata"]["annotations"] = {"kaiwo.ai/gpu-memory": amount, "kaiwo.ai/queue": "team"}
        refusal = review_workload(question(asking, "Pod"), queues, POLICY, True).refusal
        assert words in refusal
        assert bool(refusal) is bool(words)


def test_the_threads_of_a_share_are_held_to_the_bound_of_its_queue() -> None:
    def asking(threads: str, name: str) -> dict[str, Any]:
        notes = {"kaiwo.ai/gpu-fraction": "0.4", "kaiwo.ai/gpu-threads": threads, "kaiwo.ai/queue": name}
        found = pod("p", "n")
        found["metadata"]["annotations"] = notes
        return found

    queues = QUEUES | {
        "lab": Queue("lab", max_threads_milli=600),
        "team": Queue("team", "lab"),
        "plain": Queue("plain"),
    }
    for threads, name, words in (
        ("40", "plain", ""),
        ("41", "plain", "queue plain allows at most 40 % for it"),
        ("60", "team", ""),
        ("61", "team", "queue lab allows at most 60 % for it; lower it, or ask an administrator to raise"),
        ("0", "team", "from 1 to 100"),
    ):
        refusal = review_workload(question(asking(threads, name), "Pod"), queues, POLICY, True).refusal
        assert words in refusal
        assert bool(refusal) is bool(words)


def test_a_mistake_of_long_ago_keeps_nobody_from_mending_another() -> None:
    broken = QUEUES | {"lost": Queue("lost", parent="gone"), "fine": Queue("fine")}
    assert review_queue(question(queue("fine", priority=5), "KaiwoQueue", "kaiwo.ai"), broken, {}) == AdmissionVerdict()
    again = review_queue(question(queue("lost", parentQueue="nowhere"), "KaiwoQueue", "kaiwo.ai"), broken, {})
    assert "names the parent nowhere" in again.refusal


def test_work_in_a_queue_is_named_before_the_queue_goes() -> None:
    queues = QUEUES | {"team": Queue("team", gpu=QueueAmounts(quota=1000))}
    going = question(queue("team"), "KaiwoQueue", "kaiwo.ai", operation="DELETE", name="team")
    assert review_queue(going, queues, {}) == AdmissionVerdict()
    (warning,) = review_queue(going, queues, {"team": 2}).warnings
    assert warning.startswith("queue team has 2 living workloads")
    (warning,) = review_queue(
        question(queue("x", parentQueue="team"), "KaiwoQueue", "kaiwo.ai"), queues, {"team": 1}
    ).warnings
    assert "move its 1 living workload to a leaf" in warning  # fmt: skip


def test_answers_have_the_form_that_the_api_server_reads() -> None:
    refused = msgspec.json.decode(write_review("u", AdmissionVerdict("no")))["response"]
    assert refused == {"uid": "u", "allowed": False, "status": {"code": 403, "reason": "Forbidden", "message": "no"}}
    changed = msgspec.json.decode(write_review("u", AdmissionVerdict(patch=({"op": "add", "path": "/a", "value": 1},))))
    assert msgspec.json.decode(base64.b64decode(changed["response"]["patch"])) == [
        {"op": "add", "path": "/a", "value": 1}
    ]
    long = msgspec.json.decode(write_review("u", AdmissionVerdict(warnings=("x" * 1000,) * 9)))["response"]["warnings"]
    assert [len(line) for line in long] == [250] * 5


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "kaiwo-scheduler", "1", "x/y"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "template", "containers", "metadata", "annotations", "labels", "kaiwo.ai/queue"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(ANYTHING, ANYTHING)
def test_templates_are_looked_for_in_anything(spec: Any, notes: Any) -> None:
    document = msgspec.json.encode({"metadata": {"name": "x", "annotations": notes}, "spec": {"template": spec}})
    for place in read_workload_object(document, "Thing", "example.com", "n").templates:
        assert place.path.startswith("/spec")
        assert isinstance(place.scheduler, str)


def test_without_the_package_webhooks_say_what_is_missing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)

    async def test() -> None:
        async with scheduling(SchedulerOptions(str(tmp_path), webhooks="kaiwo-webhooks")):
            pass

    with pytest.raises(ConfigError, match=r"pip install 'kaiwo\[webhook\]'"):
        run(test())


def review(document: Json, kind: str, group: str = "") -> AdmissionVerdict:
    return review_workload(question(document, kind, group), QUEUES, POLICY, is_invited=False)


def question(document: Json, kind: str, group: str = "", **more: Any) -> Any:
    request = {
        "uid": "u", "kind": {"group": group, "kind": kind}, "namespace": "n", "operation": "CREATE",
        "userInfo": {"username": "alice", "groups": ["team"]}, "object": document, **more,
    }  # fmt: skip
    return read_review(msgspec.json.encode({"request": request}))
