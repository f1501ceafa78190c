"""Admission webhooks on the real API server: what is filled in, what is refused, and in which words."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters.kubernetes.chart import CHART, helm
from tests.clusters.kubernetes.installed_webhooks import Installed, installed, pod, queue
from tests.controlplane.plane import MissingError, Plane, find_programs
from tests.waiting import run, until

OURS = "kaiwo-scheduler"
QUEUE, USER = "kaiwo.ai/queue", "kaiwo.ai/user"


@pytest.fixture(scope="module")
def site(plane: Plane) -> Iterator[Installed]:
    """With `Fail`, so that no mistake of ours is passed over."""
    try:
        find_programs("helm")
    except MissingError as error:
        pytest.skip(str(error))
    with installed(
        plane, "t-webhooks", "--set=webhooks.failurePolicy=Fail", "--set=webhooks.mayNameUsers={portal}"
    ) as found:
        team = ("--group=team", "--clusterrole=cluster-admin")
        plane.kubectl("create", "clusterrolebinding", "t-webhooks-team", *team)
        yield found
        plane.kubectl("delete", "clusterrolebinding", "t-webhooks-team")


def asking(site: Installed, home: Path, story: Callable[[], None], **options: Any) -> None:
    """A person's story beside a running scheduler."""

    async def test() -> None:
        async with site.scheduler(home, **options):
            await asyncio.to_thread(_until_heard, site)
            try:
                await asyncio.to_thread(story)
            finally:
                await asyncio.to_thread(_clean, site)

    run(test())


def test_a_pod_gets_what_it_did_not_say(site: Installed, namespace: str, tmp_path: Path) -> None:
    def story() -> None:
        plain = site.stored(pod("plain", namespace), "alice")
        assert plain["spec"]["schedulerName"] == "default-scheduler"
        assert "annotations" not in plain["metadata"]
        named = site.stored(pod("named", namespace, OURS), "alice")
        assert named["metadata"]["annotations"] == {QUEUE: "default", USER: "alice"}
        wishing = site.stored(pod("wishing", namespace, annotations={"kaiwo.ai/gpu-fraction": "0.5"}), "bob")
        assert wishing["spec"]["schedulerName"] == OURS
        assert wishing["metadata"]["annotations"][USER] == "bob"
        site.stored(queue("lab", namespaces=[namespace]))
        _until_queue(site, namespace, "lab")
        other = site.stored(pod("other", namespace, "another-scheduler", annotations={QUEUE: "lab"}))
        assert other["spec"]["schedulerName"] == "another-scheduler"

    asking(site, tmp_path, story)


def test_a_pod_that_asks_for_ranks_can_see_them(site: Installed, namespace: str, tmp_path: Path) -> None:
    """The variables name annotations that the Binding will write; the API server accepts the pod with them."""

    def story() -> None:
        asking_pod = pod("ranked", namespace, OURS, annotations={"kaiwo.ai/rank-order": "true"})
        made = site.stored(asking_pod, "alice")["spec"]
        (container,) = made["containers"]
        found = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
        assert found == {
            "KAIWO_RANK": "metadata.annotations['kaiwo.ai/rank']",
            "KAIWO_WORLD_SIZE": "metadata.annotations['kaiwo.ai/world-size']",
        }
        assert "/etc/kaiwo/ranks" in [each["mountPath"] for each in container["volumeMounts"]]
        assert "kaiwo-ranks" in [each["name"] for each in made["volumes"]]
        forged = pod("forged", namespace, OURS, annotations={"kaiwo.ai/rank": "0"})
        assert "kaiwo.ai/rank is written by the scheduler" in site.create(forged, "alice")

    asking(site, tmp_path, story)


def test_a_job_carries_its_words_to_its_pods(site: Installed, namespace: str, tmp_path: Path) -> None:
    def story() -> None:
        job = site.stored(_job("train", namespace, annotations={"kaiwo.ai/priority": "5"}), "alice")
        assert job["spec"]["template"]["spec"]["schedulerName"] == OURS
        assert job["metadata"]["annotations"] == {"kaiwo.ai/priority": "5", QUEUE: "default", USER: "alice"}
        assert job["spec"]["template"]["metadata"]["annotations"] == {USER: "alice"}
        owned = pod("train-0", namespace, OURS, ownerReferences=[_reference(job)])
        made = site.stored(owned, "system:serviceaccount:kube-system:job-controller")
        assert "annotations" not in made["metadata"]  # the Job says it all; a queue here would count before its own
        forged = site.stored(pod("train-1", namespace, OURS, ownerReferences=[_reference(job)]), "mallory")
        assert forged["metadata"]["annotations"][USER] == "mallory"
        # Neither an account that is not in the list nor an owner that does not exist makes a pod somebody else's.
        for account, owner in (
            ("another:controller", _reference(job)),
            ("kube-system:job-controller", _reference(job) | {"uid": "0d1c0000-0000-4000-8000-000000000000"}),
            ("kube-system:job-controller", _reference(job) | {"name": "made-up"}),
        ):
            name = f"train-{owner['name']}-{account.partition(':')[0]}-{owner['uid'][:4]}"
            who = f"system:serviceaccount:{account}"
            forged = site.stored(pod(name, namespace, OURS, ownerReferences=[owner]), who)
            assert forged["metadata"]["annotations"][USER] == who
        cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "namespace": namespace}}
        template = _job("x", namespace)["spec"] | {"suspend": True}
        template["template"]["metadata"] = {"annotations": {"kaiwo.ai/type": "training"}}
        nightly = site.stored(cron | {"spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": template}}}, "alice")
        inner = nightly["spec"]["jobTemplate"]["spec"]["template"]
        assert inner["spec"]["schedulerName"] == OURS
        assert inner["metadata"]["annotations"] == {"kaiwo.ai/type": "training", USER: "alice"}

    asking(site, tmp_path, story)


SLIPS = [
    ({"kaiwo.ai/gpu-fractoin": "0.5"}, "is not a known annotation; did you mean kaiwo.ai/gpu-fraction?"),
    ({"kaiwo.ai/gpu-fraction": "1.5"}, 'kaiwo.ai/gpu-fraction is "1.5"'),
    ({"kaiwo.ai/priority": "high"}, 'kaiwo.ai/priority is "high", but must be a whole number'),
    ({"kaiwo.ai/time": "soon"}, 'kaiwo.ai/time is "soon"'),
    ({"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "none"}, 'kaiwo.ai/gang-size is "none"'),
    ({"kaiwo.ai/queue": "My Queue"}, 'kaiwo.ai/queue is "My Queue", but a name must use'),
    ({"kaiwo.ai/granted-devices": "[]"}, "kaiwo.ai/granted-devices is written by the scheduler; remove it"),
    ({"kaiwo.ai/user": "boss"}, 'kaiwo.ai/user is "boss", but alice submits it; remove kaiwo.ai/user'),
]


def test_a_slip_is_refused_in_our_words(site: Installed, namespace: str, tmp_path: Path) -> None:
    def story() -> None:
        for annotations, sentence in SLIPS:
            job = _job("slip", namespace, annotations=annotations)
            job["spec"]["template"]["spec"]["schedulerName"] = OURS
            for document in (pod("slip", namespace, OURS, annotations=annotations), job):
                assert sentence in " ".join(site.create(document, "alice").split())
        assert site.plane.kubectl("get", "pods,jobs", f"--namespace={namespace}", "-o", "name") == ""

    asking(site, tmp_path, story)


def test_who_brought_it_stays(site: Installed, namespace: str, tmp_path: Path) -> None:
    def story() -> None:
        first = pod("mine", namespace, OURS)
        first["spec"]["nodeSelector"] = {"kaiwo.test/nowhere": "true"}  # nobody binds it between two words of ours
        site.stored(first, "alice")
        taken = first | {"metadata": first["metadata"] | {"annotations": {USER: "bob"}}}
        assert 'names the user who submitted it and cannot change; set it back to "alice"' in site.create(
            taken, "bob", how="apply"
        )
        kept = site.stored(
            first | {"metadata": first["metadata"] | {"annotations": {"kaiwo.ai/priority": "7"}}}, "bob", "replace"
        )
        assert kept["metadata"]["annotations"] == {"kaiwo.ai/priority": "7", USER: "alice"}
        portal = pod("portal", namespace, OURS, annotations={USER: "carol"})
        assert "but alice submits it" in site.create(portal, "alice")
        assert site.stored(portal, "portal")["metadata"]["annotations"][USER] == "carol"

    asking(site, tmp_path, story, may_name_users=("portal",))


def test_what_the_scheduler_wrote_is_not_for_people(site: Installed, namespace: str, tmp_path: Path) -> None:
    """A bound pod carries its devices: others may write their own annotations beside them, and nobody changes them."""

    def story() -> None:
        site.stored(pod("bound", namespace, OURS), "alice")
        where = f"--namespace={namespace}"
        written = '{"metadata": {"annotations": {"kaiwo.ai/granted-devices": "[]"}}}'
        as_scheduler = ("--as=system:serviceaccount:t-webhooks:kaiwo", "--as-group=system:masters")
        patch = ("patch", "pod", "bound", where, "--subresource=status", "--type=merge", f"--patch={written}")
        site.plane.kubectl(*patch, *as_scheduler)
        assert "annotated" in site.plane.kubectl("annotate", "pod", "bound", where, "others=word", check=False)
        for change in ("kaiwo.ai/granted-devices=none", "kaiwo.ai/granted-devices-"):
            said = site.plane.kubectl("annotate", "--overwrite", "pod", "bound", where, change, check=False)
            assert "is written by the scheduler; do not change it" in " ".join(said.split())

    asking(site, tmp_path, story)


def test_a_namespace_can_send_all_its_work(site: Installed, namespace: str, tmp_path: Path) -> None:
    def story() -> None:
        site.plane.kubectl("label", "namespace", namespace, "kaiwo.ai/scheduling=enabled")
        _until(lambda: _scheduler_of(site, namespace) == OURS, "the label to count")
        daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
        made = site.stored(pod("daemon", namespace, ownerReferences=[daemon]))
        assert made["spec"]["schedulerName"] == "default-scheduler"

    asking(site, tmp_path, story)


def test_a_queue_says_whose_work_it_takes(site: Installed, namespace: str, tmp_path: Path) -> None:
    def story() -> None:
        site.stored(queue("closed", namespaces=["elsewhere"]))
        site.stored(queue("people", users=["alice"]))
        _until(lambda: "does not exist" not in _try(site, namespace, "people"), "the queue to be known")
        assert "queue closed takes work of the namespaces elsewhere only" in _try(site, namespace, "closed")
        assert "queue people takes work of the users alice only" in _try(site, namespace, "people", "bob")
        assert "created" in _try(site, namespace, "people", "alice")
        assert "queue nowhere does not exist; the work waits until it is created" in _try(site, namespace, "nowhere")

    asking(site, tmp_path, story)


def test_a_tree_of_queues_stays_a_tree(site: Installed, tmp_path: Path) -> None:
    def story() -> None:
        site.stored(queue("top", resources={"gpu": {"quota": 8, "limit": 8}}))
        site.stored(queue("low", parentQueue="top", resources={"gpu": {"quota": 4}}))  # right after its parent
        for document, words in (
            (queue("lost", parentQueue="nobody"), "names the parent nobody, which does not exist; create it or clear"),
            (queue("tight", resources={"gpu": {"quota": 4, "limit": 2}}), "limit is below quota"),
            (_by_model(4, MI300X=9), "the quota of a model is above the limit of all GPUs"),
            (_by_model(4, MI300X=1, mi300x=1), "appears twice"),
        ):
            assert words in " ".join(site.create(document).split())
        circle = site.create(queue("top", parentQueue="low"), how="apply")
        assert "is its own ancestor" in circle
        assert "clear parentQueue on one of them" in circle
        more = site.create(queue("more", parentQueue="top", resources={"gpu": {"quota": 6}}))
        assert "Warning: queue top has a GPU quota of 8, and the queues below it 10 together" in " ".join(more.split())
        assert "has child queues (low, more); delete those first" in _delete(site, "top")
        for name in ("low", "more", "top"):
            assert "deleted" in _delete(site, name)

    asking(site, tmp_path, story)


def test_an_upgrade_keeps_the_certificates(site: Installed, namespace: str, tmp_path: Path) -> None:
    def story() -> None:
        before = _trusted(site), _secret(site)
        assert all(before[0])
        settings = (f"--set=webhooks.port={site.port}", "--set=webhooks.failurePolicy=Fail")
        with contextlib.suppress(RuntimeError):  # the Service is another type here than in the chart
            helm("upgrade", "kaiwo", str(CHART), f"--namespace={site.namespace}", *settings, plane=site.plane)
        assert (_trusted(site), _secret(site)) == before

    asking(site, tmp_path, story)


def _job(name: str, namespace: str, **metadata: Any) -> dict[str, Any]:
    spec = pod(name, namespace)["spec"] | {"restartPolicy": "Never"}
    meta = {"name": name, "namespace": namespace} | metadata
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": {"spec": spec}}}


def _reference(owner: dict[str, Any]) -> dict[str, Any]:
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"],
        "controller": True,
    }  # fmt: skip


def _by_model(limit: int, **quotas: int) -> dict[str, Any]:
    models = {name: {"quota": quota} for name, quota in quotas.items()}
    return queue("models", resources={"gpu": {"models": models, "limit": limit}})


def _try(site: Installed, namespace: str, name: str, user: str = "alice") -> str:
    document = pod("tried", namespace, OURS, annotations={QUEUE: name})
    said = " ".join(site.create(document, user).split())
    at_once = ("--ignore-not-found", "--grace-period=0", "--force")
    site.plane.kubectl("delete", "pod", "tried", f"--namespace={namespace}", *at_once)
    return said


def _scheduler_of(site: Installed, namespace: str) -> str:
    made = yaml.safe_load(
        site.plane.kubectl(
            "create", "--dry-run=server", "-o", "yaml", "-f", "-", text=yaml.safe_dump(pod("dry", namespace))
        )
    )
    return made["spec"]["schedulerName"]


def _until_heard(site: Installed) -> None:
    """An API server takes a moment to learn whom to ask, and whom to trust."""
    slip = pod("heard", "default", annotations={"kaiwo.ai/slip": "x"})
    _until(lambda: "is not a known annotation" in site.create(slip), "the webhooks to be asked")
    _until(lambda: "nobody" in site.create(queue("heard", parentQueue="nobody")), "queues to be asked about")


def _until_queue(site: Installed, namespace: str, name: str) -> None:
    def annotated() -> bool:
        text = yaml.safe_dump(pod("dry", namespace, OURS))
        made = site.plane.kubectl("create", "--dry-run=server", "-o", "yaml", "-f", "-", text=text)
        return yaml.safe_load(made)["metadata"]["annotations"][QUEUE] == name

    _until(annotated, f"queue {name} to be that of {namespace}")


def _until(condition: Callable[[], object], what: str) -> None:
    asyncio.run(until(condition, what))


def _delete(site: Installed, name: str) -> str:
    return site.plane.kubectl("delete", "kaiwoqueue", name, check=False)


def _clean(site: Installed) -> None:
    for _ in range(2):  # children, then their parents
        site.plane.kubectl("delete", "kaiwoqueues", "--all", check=False)


def _trusted(site: Installed) -> list[str]:
    kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
    found = yaml.safe_load(site.plane.kubectl("get", kinds, "-l", "app.kubernetes.io/part-of=kaiwo", "-o", "yaml"))
    return [hook["clientConfig"].get("caBundle", "") for each in found["items"] for hook in each["webhooks"]]


def _secret(site: Installed) -> Any:
    text = site.plane.kubectl("get", "secret", "kaiwo-webhooks", f"--namespace={site.namespace}", "-o", "yaml")
    return yaml.safe_load(text)["data"]
