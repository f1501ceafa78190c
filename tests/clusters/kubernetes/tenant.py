"""A tenant: rights on pods of one namespace only, on a cluster where the chart is installed and Kaiwo may be down."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.chart import ALL_ON, CHART, account_kubeconfig, helm, uninstall
from tests.clusters.kubernetes.kubectl_cluster import pod_path
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

RELEASE, HOME = "t-tenant-kaiwo", "t-tenant-home"
Json = dict[str, Any]
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: t-tenant-home}
rules:
  - apiGroups: [""]
    resources: [pods, pods/status, pods/binding, bindings, pods/ephemeralcontainers, pods/resize, pods/eviction]
    verbs: ["*"]
"""


class Tenant(NamedTuple):
    plane: Plane
    kubeconfig: Path
    scheduler: Path  # the kubeconfig of Kaiwo's own account

    def kubectl(self, *words: str, document: Json | None = None) -> str:
        """What the tenant is answered, whether it worked or not."""
        where = f"--kubeconfig={self.kubeconfig}"
        text = json.dumps(document) if document else None
        return self.plane.kubectl(where, f"--namespace={HOME}", *words, text=text, check=False)

    def create(self, document: Json, *words: str) -> str:
        return self.kubectl("create", "-f", "-", *words, document=document)

    def raw(self, method: str, path: str, document: Json) -> str:
        """One request to a path, such as a subresource that kubectl has no word for."""
        return self.kubectl(method, f"--raw=/api/v1/namespaces/{HOME}/{path}", "-f", "-", document=document)

    def patch_as_scheduler(self, pod: str, **annotations: str) -> None:
        """As the scheduler writes: a patch, without reading first."""

        async def patch() -> None:
            async with client_for(self.scheduler) as client:
                body = msgspec.json.encode({"metadata": {"annotations": annotations}})
                await client.patch(f"{pod_path(pod, HOME)}/status", body)

        run(patch())

    def annotations(self, pod: str) -> dict[str, str]:
        found = self.plane.kubectl("get", "pod", pod, f"--namespace={HOME}", "-o", "json")
        return msgspec.json.decode(found)["metadata"].get("annotations", {})


@contextlib.contextmanager
def tenant_of(plane: Plane) -> Iterator[Tenant]:
    """Helm installs the chart; nobody answers for Kaiwo."""
    where = f"--namespace={RELEASE}"
    helm("install", "kaiwo", str(CHART), where, "--create-namespace", *ALL_ON, plane=plane)
    try:
        plane.kubectl("create", "namespace", HOME)
        plane.kubectl("create", "serviceaccount", "tenant", f"--namespace={HOME}")
        plane.kubectl("create", "-f", "-", text=ROLE)
        account = f"--serviceaccount={HOME}:tenant"
        plane.kubectl("create", "rolebinding", "tenant", "--role=tenant", account, f"--namespace={HOME}")
        # What kubelets and controllers may do; the tests act in their names.
        plane.kubectl(
            "create", "clusterrole", "t-status", "--verb=get,patch", "--resource=pods,pods/status", check=False
        )
        plane.kubectl(
            "create", "clusterrolebinding", "t-status", "--clusterrole=t-status", "--group=t-status", check=False
        )
        accounts = account_kubeconfig(plane, HOME, "tenant"), account_kubeconfig(plane, RELEASE, "kaiwo")
        tenant = Tenant(plane, *accounts)
        _wait_until_guarded(tenant)
        yield tenant
    finally:
        plane.kubectl("delete", "clusterrole,clusterrolebinding", "t-status", check=False)
        plane.kubectl("delete", "namespace", HOME, "--wait=false", check=False)
        uninstall(plane, RELEASE)


def _wait_until_guarded(tenant: Tenant) -> None:
    """The API server takes a moment to learn of each policy."""
    deadline_s = time.monotonic() + PATIENCE_S
    forged = pod("probe", annotations={"kaiwo.ai/granted-devices": "[]"})
    for probe in (forged, pod("probe", spec={"nodeName": "node-1"})):
        while "ValidatingAdmissionPolicy" not in (said := tenant.create(probe, "--dry-run=server")):
            assert time.monotonic() < deadline_s, said


def pod(name: str, scheduler: str = "default-scheduler", **metadata: Any) -> Json:
    container = {"name": "main", "image": "work", "resources": {"limits": {"amd.com/gpu": "1"}}}
    spec: Json = {"containers": [container], "schedulerName": scheduler}
    spec |= metadata.pop("spec", {})
    meta = ({"name": name} if name else {}) | metadata
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
