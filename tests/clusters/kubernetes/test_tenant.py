"""A hostile tenant on the real API server: what he writes on pods while Kaiwo is down, and what he is answered.

The numbers are those of the table in docs/security.md.
"""

import contextlib
import json
from collections.abc import Iterator

import pytest

from tests.clusters.kubernetes.tenant import HOME, Json, Tenant, pod, tenant_of
from tests.controlplane.plane import Plane

GRANT = '[{"gpu":"gpu-0","milli":1000,"mib":196608}]'
FORGED = {"kaiwo.ai/granted-devices": GRANT}
ALONE = "is written by Kaiwo's scheduler alone"
ME = f"system:serviceaccount:{HOME}:tenant"
PLACED = "only a scheduler says on which node"
UNREADABLE, NOT_MINE, TOO_LONG = "cannot read", f"must be {ME}", "is too long"
BOUND = "cannot change once it is bound"
OWNER: Json = {
    "apiVersion": "batch/v1", "kind": "Job", "name": "made-up", "uid": "0d1c0000-0000-4000-8000-000000000000",
    "controller": True,
}  # fmt: skip


PLAIN: Json = {"name": "plain", "image": "work"}
GPU: Json = {"name": "first", "image": "work", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
WITH_SHARE: Json = {"name": "share", "image": "work", "resources": {"limits": {"kaiwo.ai/gpu-share": "1"}}}


@pytest.fixture(scope="module")
def tenant(plane: Plane) -> Iterator[Tenant]:
    with tenant_of(plane) as found:
        for name, metadata in {
            "mine": {"annotations": {"kaiwo.ai/gpu-fraction": "0.5"}},
            "ours": {"scheduler": "kaiwo-scheduler"},
            "ours-bound": {"scheduler": "kaiwo-scheduler", "spec": {"nodeName": "node-1"}},
            "knows": {"scheduler": "kaiwo-scheduler", "spec": {"nodeName": "node-1"}},
            "knows-foreign": {},
            "foreign-bound": {"spec": {"nodeName": "node-1"}},
            "bound": {"spec": {"nodeName": "node-1"}, "annotations": {"kaiwo.ai/gpu-fraction": "0.5"}},
        }.items():
            # Some are bound: that is for schedulers, here an administrator.
            text = json.dumps(pod(name, **metadata))
            assert "created" in plane.kubectl("create", "-f", "-", f"--namespace={HOME}", text=text)
        # What the scheduler writes with its own account.
        found.patch_as_scheduler("bound", **FORGED, **{"kaiwo.ai/kept-space": "x"})
        yield found


CREATED = {
    1: (pod("t1", annotations=FORGED), ALONE),
    2: (pod("t2", "kaiwo-scheduler", annotations=FORGED), ALONE),
    3: (pod("t3", annotations=FORGED, spec={"nodeName": "node-1", "containers": [PLAIN]}), ALONE),
    4: (pod("t4", "my-own-scheduler", annotations=FORGED), ALONE),
    5: (pod("", annotations=FORGED, generateName="t5-"), ALONE),
    6: (pod("t6", annotations=FORGED, ownerReferences=[OWNER]), ALONE),
    7: (pod("t7", annotations={"kaiwo.ai/grant-signature": "v1.0123456789abcdef." + "0" * 128}), ALONE),
    8: (pod("t8", annotations={"kaiwo.ai/kept-space": '{"node":"node-1"}'}), ALONE),
    64: (pod("t64", annotations={"kaiwo.ai/lost-places": "eJyLjgUAARUAuQ=="}), ALONE),
    9: (pod("t9", annotations={"kaiwo.ai/planned-place": "{}", "kaiwo.ai/planned-start": "soon"}), ALONE),
    10: (pod("t10", annotations={"kaiwo.ai/fills-until": "99999999999"}), ALONE),
    11: (pod("t11", annotations={"kaiwo.ai/gpu-grade": "partition"}), ALONE),
    12: (pod("t12", labels={"kaiwo.ai/granted-devices": "gpu-0"}), ALONE),
    13: (pod("t13", annotations={"kaiwo.ai/user": "alice"}), NOT_MINE),
    14: (pod("t14", annotations={"kaiwo.silogen.ai/user": "alice"}), NOT_MINE),
    15: (pod("t15", labels={"kaiwo.silogen.ai/user": "alice"}), NOT_MINE),
    16: (pod("t16", annotations={"kaiwo.ai/user": "alice"}, ownerReferences=[OWNER]), NOT_MINE),
    17: (pod("t17", annotations={"kaiwo.ai/gpu-fraction": "-3"}), UNREADABLE),
    18: (pod("t18", annotations={"kaiwo.ai/gpu-fraction": "1e-9"}), UNREADABLE),
    19: (pod("t19", annotations={"kaiwo.silogen.ai/gpu-memory": "all of it"}), UNREADABLE),
    20: (pod("t20", annotations={"kaiwo.ai/priority": "9" * 40}), UNREADABLE),
    21: (pod("t21", annotations={"kaiwo.ai/queue": "../root"}), UNREADABLE),
    22: (pod("t22", annotations={"kaiwo.ai/time": "9" * 60}), UNREADABLE),
    23: (pod("t23", annotations={"kaiwo.ai/gpu-models": "MI300X," * 1000}), TOO_LONG),
    24: (pod("t24", annotations={"kaiwo.ai/last-checkpoint": "0" * 200_000}), TOO_LONG),
    25: (pod("t25", annotations={"kaiwo.ai/invented": "x" * 5000}), TOO_LONG),
    74: (pod("t74", spec={"nodeName": "node-1"}), PLACED),
    75: (pod("t75", "kaiwo-scheduler", spec={"nodeName": "node-1"}), PLACED),
    76: (
        pod("t76", "nobody", spec={"nodeName": "node-1", "containers": [PLAIN], "initContainers": [GPU]}),
        PLACED,
    ),
    77: (pod("t77", "nobody", spec={"nodeName": "node-1", "containers": [WITH_SHARE]}), PLACED),
    78: (pod("", spec={"nodeName": "node-1"}, generateName="t78-", ownerReferences=[OWNER]), PLACED),
}


@pytest.mark.parametrize("number", CREATED)
def test_what_a_tenant_cannot_create(tenant: Tenant, number: int) -> None:
    document, refusal = CREATED[number]
    assert refusal in tenant.create(document)


ANNOTATE = ("annotate", "--overwrite", "pod")
CHANGED = {
    26: ((*ANNOTATE, "mine", f"kaiwo.ai/granted-devices={GRANT}"), ALONE),
    27: ((*ANNOTATE, "ours", f"kaiwo.ai/granted-devices={GRANT}"), ALONE),
    28: ((*ANNOTATE, "bound", "kaiwo.ai/granted-devices=[]"), ALONE),
    29: ((*ANNOTATE, "bound", "kaiwo.ai/granted-devices-"), ALONE),
    30: ((*ANNOTATE, "bound", "kaiwo.ai/kept-space-"), ALONE),
    65: ((*ANNOTATE, "bound", "kaiwo.ai/lost-places=eJyLjgUAARUAuQ=="), ALONE),
    31: ((*ANNOTATE, "mine", "kaiwo.ai/user=alice"), NOT_MINE),
    32: ((*ANNOTATE, "mine", "kaiwo.ai/gpu-fraction=-1"), UNREADABLE),
    33: ((*ANNOTATE, "bound", "kaiwo.ai/gpu-fraction=0.9"), BOUND),
    34: ((*ANNOTATE, "bound", "kaiwo.ai/gpu-fraction-"), BOUND),
    35: ((*ANNOTATE, "bound", "kaiwo.ai/gpu-isolation=time-slicing"), BOUND),
    36: (("label", "pod", "mine", "kaiwo.ai/granted-devices=gpu-0"), ALONE),
    46: ((*ANNOTATE, "bound", "kaiwo.ai/queue=rich"), BOUND),
    47: ((*ANNOTATE, "bound", "kaiwo.silogen.ai/queue=rich"), BOUND),
    48: ((*ANNOTATE, "bound", "kaiwo.ai/preemptible=false"), BOUND),
}
NOTE = json.dumps({"metadata": {"annotations": FORGED}})
STEP = json.dumps([{"op": "add", "path": "/metadata/annotations/kaiwo.ai~1granted-devices", "value": GRANT}])
PATCHES = {
    37: ("--type=merge", f"--patch={NOTE}", "--subresource=status"),
    38: ("--type=merge", f"--patch={NOTE}", "--subresource=ephemeralcontainers"),
    39: ("--type=merge", f"--patch={NOTE}", "--subresource=resize"),
    40: ("--type=strategic", f"--patch={NOTE}"),
    41: ("--type=json", f"--patch={STEP}"),
}


@pytest.mark.parametrize("number", CHANGED)
def test_what_a_tenant_cannot_change(tenant: Tenant, number: int) -> None:
    words, refusal = CHANGED[number]
    assert refusal in tenant.kubectl(*words)


@pytest.mark.parametrize("number", PATCHES)
def test_no_subresource_or_patch_is_a_way_around(tenant: Tenant, number: int) -> None:
    said = tenant.kubectl("patch", "pod", "mine", *PATCHES[number])
    # The API server ignores metadata of some subresources; what counts is what is stored.
    assert ALONE in said or "kaiwo.ai/granted-devices" not in tenant.annotations("mine"), said
    assert "kaiwo.ai/granted-devices" not in tenant.annotations("mine")


STATUS = {
    66: ("mine", {"nominatedNodeName": "node-1"}),
    67: ("ours-bound", {"phase": "Succeeded"}),
    68: ("ours-bound", {"phase": "Failed", "reason": "Evicted"}),
    69: ("ours-bound", {"startTime": "1999-01-01T00:00:00Z"}),
    70: (
        "ours-bound",
        {"containerStatuses": [{"name": "main", "image": "work", "imageID": "", "ready": True, "restartCount": 0,
                                "resources": {"requests": {"cpu": "190"}}, "allocatedResources": {"cpu": "190"}}]},
    ),
    71: ("ours-bound", {"resources": {"requests": {"cpu": "190"}}}),
    72: ("ours", {"phase": "Running"}),
    73: ("ours", {"nominatedNodeName": "node-1"}),
    79: ("foreign-bound", {"phase": "Succeeded"}),
    80: ("foreign-bound", {"phase": "Failed", "reason": "Evicted"}),
}  # fmt: skip


@pytest.mark.parametrize("number", STATUS)
def test_a_tenant_cannot_say_how_his_pod_is_doing(tenant: Tenant, number: int) -> None:
    name, status = STATUS[number]
    body = json.dumps({"status": status})
    said = tenant.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", f"--patch={body}")
    assert "is said by its kubelet and its scheduler" in said
    found = json.loads(tenant.plane.kubectl("get", "pod", name, f"--namespace={HOME}", "-o", "json"))["status"]
    assert {key: found.get(key) for key in status} != status


def test_who_knows_how_a_pod_is_doing_may_say_it(tenant: Tenant) -> None:
    """Conditions are everybody's: readiness gates are written by controllers of all kinds."""
    gate = {"status": {"conditions": [{"type": "example.com/ready", "status": "True"}]}}
    said = tenant.kubectl("patch", "pod", "ours", "--subresource=status", f"--patch={json.dumps(gate)}")
    assert "patched" in said
    for user, group, status in (
        ("system:node:node-1", "system:nodes", {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}),
        ("system:kube-controller-manager", "system:authenticated", {"reason": "NodeLost"}),
        ("system:serviceaccount:kube-system:pod-garbage-collector", "system:authenticated", {"message": "gone"}),
        ("system:kube-scheduler", "system:authenticated", {"nominatedNodeName": "node-1"}),
    ):
        for name in ("knows", "knows-foreign") if "nominatedNodeName" not in status else ("knows-foreign",):
            words = ("--subresource=status", "--type=merge", f"--patch={json.dumps({'status': status})}")
            mine = tenant.plane.kubectl("patch", "pod", name, f"--namespace={HOME}", *words, f"--as={user}",
                                        f"--as-group={group}", "--as-group=t-status", check=False)  # fmt: skip
            assert "patched" in mine, (user, mine)


def test_42_server_side_apply_is_no_way_around(tenant: Tenant) -> None:
    said = tenant.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", document=pod("t42", annotations=FORGED)
    )
    assert ALONE in said


@contextlib.contextmanager
def binder(plane: Plane, user: str) -> Iterator[None]:
    """Somebody who may make pods and bind them in all namespaces."""
    resources = "pods,pods/binding,bindings"
    plane.kubectl("create", "clusterrole", "t-binder", "--verb=create", f"--resource={resources}")
    try:
        plane.kubectl("create", "clusterrolebinding", "t-binder", "--clusterrole=t-binder", f"--user={user}")
        yield
    finally:
        plane.kubectl("delete", "clusterrole,clusterrolebinding", "t-binder", check=False)


def binding(**annotations: str) -> Json:
    meta = {"name": "ours", "annotations": annotations}
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}


@pytest.mark.parametrize(
    ("number", "path"), [(43, "pods/ours/binding"), (44, "bindings")], ids=["43-binding", "44-bindings"]
)
def test_a_binding_of_somebody_else_carries_no_key_of_ours(tenant: Tenant, number: int, path: str) -> None:
    """Neither that of a tenant, nor that of another scheduler, who may bind pods. A server names one refusal."""
    plane, others_key = tenant.plane, {"kaiwo.ai/priority": "5"}
    for annotations in (FORGED, others_key):
        assert "ValidatingAdmissionPolicy" in tenant.raw("create", path, binding(**annotations))
    with binder(plane, "other-scheduler"):
        where = f"--raw=/api/v1/namespaces/{HOME}/{path}"
        for annotations, refusal in ((FORGED, ALONE), (others_key, "a Binding cannot set")):
            body = json.dumps(binding(**annotations))
            said = plane.kubectl("create", where, "-f", "-", "--as=other-scheduler", text=body, check=False)
            assert refusal in said
    assert "kaiwo.ai/granted-devices" not in tenant.annotations("ours")


@pytest.mark.parametrize(
    ("number", "path"), [(81, "pods/ours/binding"), (82, "bindings")], ids=["81-binding", "82-bindings"]
)
def test_a_tenant_binds_no_pod(tenant: Tenant, number: int, path: str) -> None:
    """Also with a role that says he may: whoever binds the pods of one namespace only is no scheduler."""
    assert PLACED in tenant.raw("create", path, binding())
    found = json.loads(tenant.plane.kubectl("get", "pod", "ours", f"--namespace={HOME}", "-o", "json"))
    assert "nodeName" not in found["spec"]


def test_a_tenants_pod_does_not_grow_past_its_queue(tenant: Tenant) -> None:
    """Attempt 92: what is asked for counts at once, so it would keep the CPUs of the node from others."""

    def resize(cpu: str) -> str:
        body = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
        return tenant.kubectl("patch", "pod", "grows", "--subresource=resize", f"--patch={json.dumps(body)}")

    resources = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "191", "memory": "1Gi"}}
    main = {"name": "main", "image": "work", "resources": resources}
    text = json.dumps(pod("grows", "kaiwo-scheduler", spec={"nodeName": "node-1", "containers": [main]}))
    node = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    tenant.plane.kubectl("create", "-f", "-", text=node)
    try:
        amounts = {"cpu": "192", "memory": "2Ti"}
        status = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
        tenant.plane.kubectl("patch", "node", "node-1", "--subresource=status", f"--patch={status}")
        assert "created" in tenant.plane.kubectl("create", "-f", "-", f"--namespace={HOME}", text=text)
        assert "does not ask for more while it runs" in resize("190")
        assert "patched" in resize("1"), "it may give back"
        assert "does not ask for more while it runs" in resize("2"), "and what it gave back is gone"
    finally:
        tenant.plane.kubectl("delete", "node", "node-1", check=False)


def test_who_may_bind_everywhere_and_kubelets_place_pods(tenant: Tenant) -> None:
    """Another scheduler of the cluster, its administrators, and kubelets with pods of their own files."""
    plane = tenant.plane
    with binder(plane, "other-scheduler"):
        by = ("create", "-f", "-", f"--namespace={HOME}", "--as=other-scheduler")
        assert "created" in plane.kubectl(*by, text=json.dumps(pod("placed", spec={"nodeName": "node-1"})), check=False)
        assert "created" in plane.kubectl(*by, text=json.dumps(pod("to-place", "other-scheduler")), check=False)
        body = json.dumps(binding() | {"metadata": {"name": "to-place"}})
        path = f"--raw=/api/v1/namespaces/{HOME}/pods/to-place/binding"
        said = plane.kubectl("create", path, "-f", "-", "--as=other-scheduler", text=body, check=False)
        assert '"Success"' in said, said
        without = pod("cpu-only", spec={"nodeName": "node-1", "containers": [PLAIN]})
        assert "created" in tenant.create(without), "a pod without GPUs is not our concern"


def test_45_the_keys_and_the_policies_themselves_are_out_of_reach(tenant: Tenant) -> None:
    for words in (
        ("get", "secret", "kaiwo-grants", "--namespace=t-tenant-kaiwo"),
        ("get", "configmap", "kaiwo-grants", "--namespace=t-tenant-kaiwo"),
        ("delete", "validatingadmissionpolicy", "kaiwo-pod-keys.t-tenant-kaiwo"),
        ("delete", "validatingadmissionpolicybinding", "kaiwo-pod-keys.t-tenant-kaiwo"),
        ("create", "token", "kaiwo", "--namespace=t-tenant-kaiwo"),
        ("annotate", "node", "--all", "kaiwo.ai/devices=[]"),
    ):
        assert "forbidden" in tenant.kubectl(*words).lower(), words


def test_what_a_tenant_may_write_works_while_kaiwo_is_down(tenant: Tenant) -> None:
    notes = {
        "kaiwo.ai/gpu-fraction": "0.25", "kaiwo.ai/queue": "team-a", "kaiwo.ai/priority": "-10", "kaiwo.ai/user": ME,
        "kaiwo.ai/time": "2h30m", "kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "2", "example.com/other": "x" * 9999,
        "kaiwo.ai/expires": "2030-01-31T18:00:00Z", "kaiwo.ai/last-checkpoint": "not a time: a warning, no refusal",
    }  # fmt: skip
    assert "created" in tenant.create(pod("fine", "kaiwo-scheduler", annotations=notes))
    assert "annotated" in tenant.kubectl(*ANNOTATE, "fine", "kaiwo.ai/gpu-fraction=0.5", "kaiwo.ai/queue=team-b")
    assert "annotated" in tenant.kubectl(*ANNOTATE, "bound", "kaiwo.ai/last-checkpoint=1700000000")
    assert "labeled" in tenant.kubectl("label", "pod", "bound", "mine=too")


def test_a_trusted_controller_names_the_user_of_what_it_owns_and_grants_nothing(tenant: Tenant) -> None:
    def by(account: str, document: Json) -> str:
        return tenant.plane.kubectl(
            "create", "-f", "-", f"--namespace={HOME}", f"--as=system:serviceaccount:{account}",
            "--as-group=system:serviceaccounts", text=json.dumps(document), check=False,
        )  # fmt: skip

    rule = ("create", "rolebinding", "jobs", "--role=tenant", f"--namespace={HOME}")
    accounts = ("kube-system:job-controller", "other:controller")
    tenant.plane.kubectl(*rule, *(f"--serviceaccount={account}" for account in accounts))
    user = {"kaiwo.ai/user": "alice"}
    assert "created" in by("kube-system:job-controller", pod("of-job", annotations=user, ownerReferences=[OWNER]))
    assert "must be" in by("kube-system:job-controller", pod("ownerless", annotations=user))
    assert "must be" in by("other:controller", pod("of-other", annotations=user, ownerReferences=[OWNER]))
    assert ALONE in by("kube-system:job-controller", pod("granted", annotations=FORGED, ownerReferences=[OWNER]))


@pytest.mark.parametrize("kind", ["Job", "Deployment", "CronJob"])
def test_a_template_is_checked_like_a_pod(tenant: Tenant, kind: str) -> None:
    """By somebody who may create such objects: his pods are made by a trusted controller."""

    def document(notes: dict[str, str]) -> Json:
        template: Json = {"metadata": {"annotations": notes, "labels": {"a": "b"}}, "spec": pod("x")["spec"]}
        if kind != "Deployment":
            template["spec"]["restartPolicy"] = "Never"
        spec: Json = {"template": template}
        if kind == "Deployment":
            spec["selector"] = {"matchLabels": {"a": "b"}}
        if kind == "CronJob":
            spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
        group = "apps/v1" if kind == "Deployment" else "batch/v1"
        return {"apiVersion": group, "kind": kind, "metadata": {"name": "w"}, "spec": spec}

    def create(notes: dict[str, str]) -> str:
        words = ("create", "--dry-run=server", "-f", "-", f"--namespace={HOME}", "--as=bob")
        return tenant.plane.kubectl(*words, text=json.dumps(document(notes)), check=False)

    rights = ("create", "role", f"all-{kind.lower()}", "--verb=*", "--resource=jobs,deployments,cronjobs")
    tenant.plane.kubectl(*rights, f"--namespace={HOME}")
    role = (f"--role=all-{kind.lower()}", "--user=bob", f"--namespace={HOME}")
    tenant.plane.kubectl("create", "rolebinding", f"all-{kind.lower()}", *role)
    assert ALONE in create(FORGED)
    assert "must be bob" in create({"kaiwo.ai/user": "alice"})
    assert "created" in create({"kaiwo.ai/user": "bob", "kaiwo.ai/gpu-fraction": "0.5"})
