"""What docs/install.md says about uninstalling is typed, and nothing is left but what it names."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.chart import CHART, account_kubeconfig, helm
from tests.clusters.kubernetes.installed_webhooks import queue
from tests.clusters.kubernetes.kubectl_cluster import Kubectl
from tests.clusters.kubernetes.running_scheduler import until_bound
from tests.conftest import ROOT
from tests.controlplane.plane import MissingError, Plane, find_programs, running_plane
from tests.waiting import run, wait_until

NAMESPACE = "kaiwo-system"
PAGE = (ROOT / "docs" / "install.md").read_text()
WITH_HELM, WITHOUT, NODES = (
    block.partition("```")[0] for block in PAGE.partition("## Uninstall")[2].partition("\n## ")[0].split("```sh\n")[1:]
)
# What comes and goes by itself, or is there because the cluster was used.
NOT_OURS = ("events", "events.events.k8s.io", "componentstatuses", "leases.coordination.k8s.io")
Found = set[str]


@pytest.fixture(scope="module")
def empty_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """One that has never seen Kaiwo, with controllers: they remove what belongs to what was deleted."""
    try:
        programs = find_programs("helm")
    except MissingError as error:
        pytest.skip(str(error))
    with running_plane(tmp_path_factory.mktemp("uninstall")) as plane:
        plane.start_controllers("--controllers=*,-node-lifecycle-controller")  # no kubelet reports for the node
        assert programs == plane.programs
        yield plane


def type_lines(plane: Plane, text: str) -> None:
    """As a person would, with kubectl, helm and kaiwo in the path."""
    programs = os.pathsep.join((str(plane.programs), str(Path(sys.executable).parent), os.environ["PATH"]))
    env = os.environ | {"PATH": programs, "KUBECONFIG": str(plane.kubeconfig)}
    done = subprocess.run(["bash", "-ec", text], env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def everything(plane: Plane) -> Found:
    """Every object of the cluster, as kind, namespace and name."""
    kinds = plane.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    chosen = ",".join(kind for kind in kinds if kind not in NOT_OURS)
    columns = "K:.kind,S:.metadata.namespace,N:.metadata.name"
    found = plane.kubectl("get", chosen, "-A", "--no-headers", "-o", f"custom-columns={columns}")
    return {" ".join(line.split()) for line in found.splitlines()}


def our_leases(plane: Plane) -> str:
    return plane.kubectl("get", "leases", "-A", "-o", "name", "--field-selector=metadata.name=kaiwo-scheduler")


def keys_of_ours(plane: Plane, kind: str) -> Found:
    objects = yaml.safe_load(plane.kubectl("get", kind, "-A", "-o", "yaml"))["items"]
    texts = (key for each in objects for part in ("annotations", "labels") for key in each["metadata"].get(part, {}))
    return {key for key in texts if "kaiwo" in key}


async def use(plane: Plane, home: Path) -> None:
    """A scheduler leads, a queue exists, a pod is bound."""
    async with client_for(plane.kubeconfig) as client:
        kubectl = Kubectl(client)
        await kubectl.node("node-1")
        account = account_kubeconfig(plane, NAMESPACE, "kaiwo")
        options = SchedulerOptions(str(home), port=0, kubeconfig=str(account), lease_namespace=NAMESPACE)
        async with scheduling(options):
            await kubectl.pod("train", gpus=2, annotations={"kaiwo.ai/queue": "lab"})
            await until_bound(kubectl, "train")


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("way", ["helm", "plain"])
def test_what_the_page_says_leaves_nothing_but_what_it_names(empty_cluster: Plane, tmp_path: Path, way: str) -> None:
    plane = empty_cluster
    before = everything(plane)
    if way == "helm":
        helm("install", "kaiwo", str(CHART), f"--namespace={NAMESPACE}", "--create-namespace", plane=plane)
    else:
        type_lines(plane, WITHOUT.replace("delete --ignore-not-found", "apply"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")
    plane.kubectl("apply", "-f", "-", text=yaml.safe_dump(queue("lab")))
    run(use(plane, tmp_path))
    plane.kubectl("annotate", "node", "node-1", "kaiwo.ai/devices=[]")  # as an agent does
    assert len(everything(plane) - before) > 30
    assert our_leases(plane)

    type_lines(plane, WITH_HELM if way == "helm" else WITHOUT)
    used = {"Pod default train", "Node <none> node-1"}
    wait_until(lambda: everything(plane) - before == used, "everything of ours to be gone")
    assert our_leases(plane) == ""
    assert "kaiwo.ai/granted-devices" in keys_of_ours(plane, "pods")
    assert keys_of_ours(plane, "nodes") == {"kaiwo.ai/devices"}
    type_lines(plane, NODES)
    assert keys_of_ours(plane, "nodes") == set()
    plane.kubectl("delete", "pod/train", "node/node-1", "--now")
    assert everything(plane) - before == set()
