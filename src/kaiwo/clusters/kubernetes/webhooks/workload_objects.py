"""Read the workload objects that are reviewed: a pod, or an object of any kind that creates pods.

Pod templates are found by their shape, so that new kinds need no code here.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.cache.checkpoint_annotations import CHECKPOINT_ANNOTATIONS
from kaiwo.clusters.kubernetes.cache.progress_annotations import PROGRESS_ANNOTATIONS
from kaiwo.clusters.kubernetes.decode.wire_objects import Container, Resources
from kaiwo.manifests.kinds.annotations import (
    KNOWN_ANNOTATIONS,
    KUEUE_QUEUE,
    OUR_PREFIX,
    SCHEDULER_ANNOTATIONS,
    UPSTREAM_PREFIX,
)
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu_models import RESOURCE_VENDORS

DEEPEST = 8  # nested mappings from `spec` to a pod template: five in a CronJob, six in a JobSet
MAX_TEMPLATES = 200  # a RayCluster has some dozens at most; every check is made for each of them
DEFAULT_SCHEDULER = "default-scheduler"
BUILT_IN = ("", "apps", "batch")  # groups whose pod templates keep their annotations; other kinds may prune them
Json = dict[str, Any]
Strings = dict[str, str]

WRITTEN_BY_PROGRAMS = (*CHECKPOINT_ANNOTATIONS, *PROGRESS_ANNOTATIONS)  # while they run: they ask for nothing


class PodTemplate(NamedTuple):
    """A pod, or a template of pods."""

    path: str  # in the object, for a JSON patch
    metadata: Json | None  # None: it has none yet
    spec: Json

    @property
    def annotations(self) -> Strings:
        return string_values(self.metadata or {}, "annotations")

    @property
    def labels(self) -> Strings:
        return string_values(self.metadata or {}, "labels")

    @property
    def scheduler(self) -> str:
        return str(self.spec.get("schedulerName") or "")


class WorkloadObject(NamedTuple):
    kind: str
    group: str
    namespace: str
    metadata: Json
    templates: tuple[PodTemplate, ...]

    @property
    def owner(self) -> str:
        return f"{self.kind} '{self.metadata.get('name') or self.metadata.get('generateName', '')}'"

    @property
    def controller(self) -> Json:
        references = self.metadata.get("ownerReferences") or []
        return next((each for each in references if each.get("controller")), {})

    @property
    def annotations(self) -> Strings:
        return string_values(self.metadata, "annotations")

    @property
    def metadata_layers(self) -> list[tuple[Strings, Strings]]:
        """Annotations and labels, those of the templates first: what is nearest to the pod counts."""
        own = (self.annotations, string_values(self.metadata, "labels"))
        inner = () if self.is_pod else self.templates
        return [*((template.annotations, template.labels) for template in inner), own]

    @property
    def is_pod(self) -> bool:
        return self.kind == "Pod" and not self.group


def read_workload_object(raw: bytes, kind: str, group: str, namespace: str) -> WorkloadObject:
    document = msgspec.json.decode(raw, type=Json)
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    if kind == "Pod" and not group:
        return WorkloadObject(kind, group, namespace, metadata, (PodTemplate("", metadata, spec),))
    templates = tuple(islice(_templates(spec, "/spec", 0), MAX_TEMPLATES + 1))
    work = WorkloadObject(kind, group, namespace, metadata, templates)
    if len(templates) > MAX_TEMPLATES:
        raise ConfigError(f"{work.owner} has more than {MAX_TEMPLATES} pod templates; divide it into several objects")
    return work


def string_values(metadata: Json, name: str) -> Strings:
    """Only strings: the schema of another kind may allow other values."""
    found = metadata.get(name)
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def mentions_kaiwo(layers: list[tuple[Strings, Strings]]) -> bool:
    """Whether it has a setting for Kaiwo, even a misspelt one: then it is meant for Kaiwo."""
    for annotations, labels in layers:
        own = [key.removeprefix(OUR_PREFIX) for key in annotations if key.startswith(OUR_PREFIX)]
        if any(name not in SCHEDULER_ANNOTATIONS for name in own):
            return True
        if any(key.startswith(OUR_PREFIX) and key.removeprefix(OUR_PREFIX) in KNOWN_ANNOTATIONS for key in labels):
            return True
    return False


def settings_of(work: WorkloadObject) -> list[tuple[Strings, Strings]]:
    return [
        (
            {key: annotations[key] for key in annotations if _is_setting(key)},
            {key: labels[key] for key in labels if _is_setting(key)},
        )
        for annotations, labels in work.metadata_layers
    ]


def _is_setting(key: str) -> bool:
    """The time of the last checkpoint is no setting: programs write it again and again."""
    return (key.startswith((OUR_PREFIX, UPSTREAM_PREFIX)) or key == KUEUE_QUEUE) and key not in WRITTEN_BY_PROGRAMS


def whole_gpus(template: PodTemplate) -> tuple[int, str]:
    found: dict[str, int] = {}
    for raw in template.spec.get("containers") or ():
        resources = msgspec.convert(raw, Container, strict=False).resources or Resources()
        asked = (resources.limits or {}) | (resources.requests or {})
        for name in RESOURCE_VENDORS:
            if str(asked.get(name, "")).isdigit():
                found[name] = found.get(name, 0) + int(asked[name])
    found = {name: count for name, count in found.items() if count}
    if len(found) > 1:
        listed = " and ".join(sorted(found))
        raise ConfigError(f"it requests {listed}, but a pod runs on GPUs of one vendor; keep one of them")
    name, count = next(iter(found.items()), ("amd.com/gpu", 0))
    return count, name


def _templates(value: Any, path: str, depth: int) -> Iterator[PodTemplate]:
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
        yield PodTemplate(path, value.get("metadata"), spec)
        return
    for key, each in value.items():
        if isinstance(each, dict | list):
            yield from _templates(each, f"{path}/{key.replace('~', '~0').replace('/', '~1')}", depth + 1)
