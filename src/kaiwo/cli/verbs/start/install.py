"""`kaiwo install`: print the manifests that install Kaiwo on a Kubernetes cluster, for `kubectl apply -f -`.

Never: changes a cluster; kubectl does that with its user's rights.
"""

import re
from pathlib import Path

import click

from kaiwo import __version__
from kaiwo.model.errors import ConfigError

DATA = Path(__file__).parents[2] / "deploy"  # links to deploy/ in a checkout, files in the package
IMAGE = f"kaiwo:{__version__}"  # the image in the manifests
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")


@click.command()
@click.option("--dry-run", is_flag=True, help="Print the manifests (required; kubectl applies them).")
@click.option("--image", metavar="NAME", default=IMAGE, show_default=True, help="Image that the nodes can pull.")
@click.option("--agent", is_flag=True, help="Include the agent for GPU nodes; it runs privileged.")
def install(dry_run: bool, image: str, agent: bool) -> None:
    """Print the manifests that install Kaiwo on a Kubernetes cluster: CRDs, RBAC rules and the scheduler.

    Everything is installed in the namespace kaiwo-system; for other settings use the Helm chart in deploy/chart. Build
    the image yourself with deploy/Dockerfile.

    \b
    Examples:
      kaiwo install --dry-run --image registry.example/kaiwo:0.1.0 | kubectl apply -f -
      kaiwo install --dry-run --agent | kubectl diff -f -
    """
    if not dry_run:
        raise ConfigError("apply the manifests with kubectl: kaiwo install --dry-run | kubectl apply -f -", "--dry-run")
    if not _REFERENCE.fullmatch(image):
        raise ConfigError(f"--image is '{image}'; write it as registry.example/kaiwo:{__version__}", "--image")
    click.echo("\n".join(_documents(image, agent)))


def _documents(image: str, with_agent: bool) -> list[str]:
    kinds = [path.read_text() for path in sorted((DATA / "crds").iterdir())]
    names = ("scheduler.yaml", "agent.yaml") if with_agent else ("scheduler.yaml",)
    manifests = [(DATA / "manifests" / name).read_text() for name in names]
    texts = kinds + [text.replace(f'image: "{IMAGE}"', f'image: "{image}"') for text in manifests]
    return [f"---\n{text.strip()}" for text in texts]
