"""Webhooks on the real API server: the chart's own objects, with the Service pointed at this machine."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from tests.clusters.kubernetes.chart import CHART, account_kubeconfig, helm, uninstall
from tests.controlplane.plane import Plane, free_ports

CERTIFICATE_OF = "kaiwo-webhooks"
TRUSTED = tuple(yaml.safe_load((CHART / "values.yaml").read_text())["admission"]["trustedControllers"])


class Installed(NamedTuple):
    """One release of the chart."""

    plane: Plane
    namespace: str
    port: int
    kubeconfig: Path  # of its service account

    @asynccontextmanager
    async def scheduler(self, home: Path, **options: Any) -> AsyncIterator[None]:
        """What the Deployment runs, with the rights of its account."""
        wanted = SchedulerOptions(
            str(home), port=0, kubeconfig=str(self.kubeconfig), lease_namespace=self.namespace, leader_elect=False,
            webhooks=CERTIFICATE_OF, webhook_port=self.port, trusted_controllers=TRUSTED, **options,
        )  # fmt: skip
        async with scheduling(wanted):
            yield

    def create(self, document: dict[str, Any], user: str = "", check: bool = False, how: str = "create") -> str:
        """What kubectl answers to somebody who brings this."""
        who = (f"--as={user}", "--as-group=team") if user else ()
        words = (how, "-f", "-", *(("-o", "yaml") if check else ()), *who)
        return self.plane.kubectl(*words, text=yaml.safe_dump(document), check=check)

    def stored(self, document: dict[str, Any], user: str = "", how: str = "create") -> dict[str, Any]:
        """The same, as the server stored it."""
        return yaml.safe_load(self.create(document, user, check=True, how=how))


@contextlib.contextmanager
def installed(plane: Plane, namespace: str, *options: str) -> Iterator[Installed]:
    """Helm installs it; without a network for Services the API server asks at localhost instead."""
    (port,) = free_ports(1)
    where = f"--namespace={namespace}"
    settings = (f"--set=webhooks.port={port}", "--set=webhooks.timeoutSeconds=10", *options)
    helm("install", "kaiwo", str(CHART), where, "--create-namespace", *settings, plane=plane)
    try:
        plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")
        point_at_localhost(plane, namespace)
        yield Installed(plane, namespace, port, account_kubeconfig(plane, namespace, "kaiwo"))
    finally:
        uninstall(plane, namespace)


def point_at_localhost(plane: Plane, namespace: str) -> None:
    """The certificate is still for the Service's name: only the way there is another one."""
    plane.kubectl("delete", "service", CERTIFICATE_OF, f"--namespace={namespace}")
    plane.kubectl(
        "create", "service", "externalname", CERTIFICATE_OF, "--external-name=localhost", f"--namespace={namespace}"
    )


def pod(name: str, namespace: str, scheduler: str = "", gpus: int = 1, **metadata: Any) -> dict[str, Any]:
    amounts = {"cpu": "1"} | ({"amd.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "main", "image": "work", "resources": {"limits": amounts}}
    spec: dict[str, Any] = {"containers": [container]} | ({"schedulerName": scheduler} if scheduler else {})
    meta = {"name": name, "namespace": namespace} | metadata
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue", "metadata": {"name": name}, "spec": spec}
