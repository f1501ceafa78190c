"""Our chart, handled with the real Helm."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT
from tests.controlplane.plane import Plane, find_programs
from tests.waiting import wait_until

CHART = ROOT / "deploy" / "chart"
Json = dict[str, Any]
IMAGE = "--set=image.repository=registry.example/kaiwo"
# Every option that adds an object, except the ServiceMonitor, whose kind the server does not have.
ALL_ON = (
    "--set=agent.enabled=true",
    "--set=api.tokenSecret=kaiwo-token",
    "--set=policy.placement=spread",
    "--set=policy.adjustment.mode=act",
)


def helm(*words: str, plane: Plane | None = None) -> str:
    """What it printed; RuntimeError with its own words when it refused."""
    where = [f"--kubeconfig={plane.kubeconfig}"] if plane else []
    image = [IMAGE] if words[0] in ("install", "upgrade", "template", "lint") else []
    command = [find_programs("helm") / "helm", words[0], *image, *words[1:], *where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def uninstall(plane: Plane, namespace: str) -> None:
    """Remove the release, and wait until nothing of it acts any more."""
    helm("uninstall", "kaiwo", f"--namespace={namespace}", "--cascade=background", plane=plane)
    wait_until_unguarded(plane)


def wait_until_unguarded(plane: Plane) -> None:
    """The API server forgets a deleted admission policy a moment later, and refuses our keys to others until then."""
    probe = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe", "annotations": {"kaiwo.ai/granted-devices": "[]"}},
            "spec": {"containers": [{"name": "main", "image": "work"}]},
        }
    )
    words = ("create", "--dry-run=server", "--namespace=default", "-f", "-")
    wait_until(lambda: "created" in plane.kubectl(*words, text=probe, check=False), "the admission policies to be gone")


def rendered(*options: str) -> list[Json]:
    """The objects that the chart makes."""
    text = helm("template", "kaiwo", str(CHART), "--namespace=kaiwo-system", *options)
    return [document for document in yaml.safe_load_all(text) if document]


def one(documents: list[Json], kind: str, name: str = "kaiwo") -> Json:
    (found,) = (each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def names(documents: list[Json]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in documents}


def account_kubeconfig(plane: Plane, namespace: str, account: str) -> Path:
    """Whoever uses it is this service account: the token is one that the API server gave out for it."""
    token = plane.kubectl("create", "token", account, f"--namespace={namespace}", "--duration=1h").strip()
    return plane.write_kubeconfig(f"{namespace}-{account}", f"token: {token}")
