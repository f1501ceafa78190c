"""`kaiwo install`: show what an installation on Kubernetes makes, and print its manifests for `kubectl apply -f -`.

Never: changes a cluster; kubectl does that with its user's rights.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from kaiwo import __version__
from kaiwo.cli.output import printing
from kaiwo.model.errors import ConfigError

DATA = Path(__file__).parents[2] / "deploy"  # links to deploy/ in a checkout, files in the package
IMAGE = f"registry.example/kaiwo:{__version__}"  # in the manifests, where nothing is
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
BUILD = (
    "No image of Kaiwo is published yet: build one with deploy/Dockerfile, and push it where your nodes can pull it."
)


@click.command()
@click.option("--dry-run", is_flag=True, help="Print the manifests, for kubectl.")
@click.option("--image", metavar="NAME", default="", help="Image that the nodes can pull; needed with --dry-run.")
@click.option("--agent", is_flag=True, help="Include the agent for GPU nodes.")
def install(dry_run: bool, image: str, agent: bool) -> None:
    """Show what an installation on Kubernetes makes; with --dry-run, print its manifests for kubectl.

    Everything is installed in the namespace kaiwo-system; for other settings use the Helm chart in deploy/chart. Build
    the image yourself with deploy/Dockerfile. Kaiwo itself changes nothing.

    \b
    Examples:
      kaiwo install
      kaiwo install --dry-run --image registry.example/kaiwo:0.1.0 | kubectl apply -f -
      kaiwo install --dry-run --image registry.example/kaiwo:0.1.0 | kubectl delete -f -
    """
    if image and not _REFERENCE.fullmatch(image):
        raise ConfigError(f"--image is '{image}'; write it as {IMAGE}", "--image")
    if not dry_run:
        _print_summary(image, agent)
        return
    if not image:
        raise ConfigError(f"--image is missing. {BUILD} Then: kaiwo install --dry-run --image {IMAGE}", "--image")
    click.echo("\n".join(_documents(image, agent)))


def _print_summary(image: str, with_agent: bool) -> None:
    objects: dict[str, list[str]] = {}
    for document in _documents(IMAGE, with_agent):
        for kind, name in _kinds_and_names(document):
            objects.setdefault(kind, []).append(name)
    click.echo(f"An installation of Kaiwo {__version__} on Kubernetes makes:")
    printing.print_facts(*((f"  {kind}", ", ".join(dict.fromkeys(names))) for kind, names in objects.items()))
    command = f"kaiwo install --dry-run --image {image or IMAGE}{' --agent' if with_agent else ''}"
    if not image:
        click.echo(f"\n{printing.wrap(BUILD)}")
    click.echo(f"\nNothing was changed. Install it with:\n  {command} | kubectl apply -f -")
    click.echo(f"Remove it again, with all queues and reservations:\n  {command} | kubectl delete -f -")


def _kinds_and_names(manifest: str) -> Iterator[tuple[str, str]]:
    """Of every object; our manifests have the kind before the metadata."""
    kind, is_metadata = "", False
    for line in manifest.splitlines():
        if not line.startswith(" "):
            kind = line.removeprefix("kind: ") if line.startswith("kind: ") else kind
            is_metadata = line == "metadata:"
        elif is_metadata and line.startswith("  name: "):
            yield kind, line.removeprefix("  name: ").strip('"')


def _documents(image: str, with_agent: bool) -> list[str]:
    kinds = [path.read_text() for path in sorted((DATA / "crds").iterdir())]
    names = ("scheduler.yaml", "agent.yaml") if with_agent else ("scheduler.yaml",)
    manifests = [(DATA / "manifests" / name).read_text() for name in names]
    texts = kinds + [text.replace(f'image: "{IMAGE}"', f'image: "{image}"') for text in manifests]
    return [f"---\n{text.strip()}" for text in texts]
