"""An object that brings work: a pod, or whatever makes pods.

In:    the object as JSON.   Out: its words about itself, and every pod template in it with the path to it.
Pod templates are found by their shape, so that a kind that comes later needs no code here.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.cache.checkpoint_annotations import CHECKPOINT_ANNOTATIONS
from kaiwo.clusters.kubernetes.decode.wire_objects import Container, Resources
from kaiwo.manifests.kinds.annotations import (
    KNOWN_ANNOTATIONS,
    KUEUE_QUEUE,
    OUR_PREFIX,
    SCHEDULER_ANNOTATIONS,
    UPSTREAM_PREFIX,
)
from kaiwo.manifests.values.gpu_model_names import RESOURCE_VENDORS
from kaiwo.model.errors import ConfigError

DEEPEST = 8  # mappings below each other, from `spec` to a pod template: five in a CronJob, six in a JobSet
DEFAULT_SCHEDULER = "default-scheduler"
BUILT_IN = ("", "apps", "batch")  # groups whose pod templates keep their annotations; other kinds may prune them
Json = dict[str, Any]
Texts = dict[str, str]


class Place(NamedTuple):
    """A pod, or a template of pods: where it stands, its metadata and its spec."""

    path: str  # of a JSON patch
    metadata: Json | None  # None: it has none yet
    spec: Json

    @property
    def notes(self) -> Texts:
        return texts(self.metadata or {}, "annotations")

    @property
    def labels(self) -> Texts:
        return texts(self.metadata or {}, "labels")

    @property
    def scheduler(self) -> str:
        return str(self.spec.get("schedulerName") or "")


class Work(NamedTuple):
    """One object that brings work."""

    kind: str
    group: str
    namespace: str
    metadata: Json
    places: tuple[Place, ...]

    @property
    def owner(self) -> str:
        """What people call it."""
        return f"{self.kind} '{self.metadata.get('name') or self.metadata.get('generateName', '')}'"

    @property
    def controller(self) -> Json:
        """What made it, if something did."""
        references = self.metadata.get("ownerReferences") or []
        return next((each for each in references if each.get("controller")), {})

    @property
    def notes(self) -> Texts:
        return texts(self.metadata, "annotations")

    @property
    def said(self) -> list[tuple[Texts, Texts]]:
        """Annotations and labels, those of the templates first: the nearest to the pod counts."""
        own = (self.notes, texts(self.metadata, "labels"))
        return [own] if self.is_pod else [*((place.notes, place.labels) for place in self.places), own]

    @property
    def is_pod(self) -> bool:
        return self.kind == "Pod" and not self.group


def read_work(raw: bytes, kind: str, group: str, namespace: str) -> Work:
    """The object of a review."""
    document = msgspec.json.decode(raw, type=Json)
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    places = [Place("", metadata, spec)] if kind == "Pod" and not group else list(_templates(spec, "/spec", 0))
    return Work(kind, group, namespace, metadata, tuple(places))


def texts(metadata: Json, name: str) -> Texts:
    """The API server has checked that they are texts; a stranger's kind may have let something else in."""
    found = metadata.get(name)
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def names_kaiwo(said: list[tuple[Texts, Texts]]) -> bool:
    """Somebody wrote a wish of ours, or tried to: he wants our scheduler."""
    for notes, labels in said:
        if any(
            key.startswith(OUR_PREFIX) and key.removeprefix(OUR_PREFIX) not in SCHEDULER_ANNOTATIONS for key in notes
        ):
            return True
        if any(key.startswith(OUR_PREFIX) and key.removeprefix(OUR_PREFIX) in KNOWN_ANNOTATIONS for key in labels):
            return True
    return False


def words_of(work: Work) -> list[tuple[Texts, Texts]]:
    """All that it says to us, place by place."""
    return [
        ({key: notes[key] for key in notes if _is_read(key)}, {key: labels[key] for key in labels if _is_read(key)})
        for notes, labels in work.said
    ]


def _is_read(key: str) -> bool:
    """When it last saved its work is no wish: programs write it again and again."""
    return (key.startswith((OUR_PREFIX, UPSTREAM_PREFIX)) or key == KUEUE_QUEUE) and key not in CHECKPOINT_ANNOTATIONS


def whole_gpus(place: Place) -> tuple[int, str]:
    """How many whole GPUs its containers ask for, and by which resource."""
    found: dict[str, int] = {}
    for raw in place.spec.get("containers") or ():
        resources = msgspec.convert(raw, Container, strict=False).resources or Resources()
        asked = (resources.limits or {}) | (resources.requests or {})
        for name in RESOURCE_VENDORS:
            if str(asked.get(name, "")).isdigit():
                found[name] = found.get(name, 0) + int(asked[name])
    found = {name: count for name, count in found.items() if count}
    if len(found) > 1:
        raise ConfigError(f"it asks for {' and '.join(sorted(found))}; one pod runs on one vendor's GPUs: keep one")
    name, count = next(iter(found.items()), ("amd.com/gpu", 0))
    return count, name


def _templates(value: Any, path: str, depth: int) -> Iterator[Place]:
    if depth > DEEPEST:
        return
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _templates(each, f"{path}/{index}", depth)
        return
    if not isinstance(value, dict):
        return
    spec = value.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
        yield Place(path, value.get("metadata"), spec)
        return
    for key, each in value.items():
        if isinstance(each, dict | list):
            yield from _templates(each, f"{path}/{key.replace('~', '~0').replace('/', '~1')}", depth + 1)
