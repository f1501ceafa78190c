"""Read the settings of a workload from annotations and labels: queue, user, priority, times.

The result is a Workload with only these settings, without a name and pods. Annotations have the same names and the same
precedence as in a file that `kaiwo apply` reads.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kaiwo.clusters.kubernetes.gangs.labels import KAI_LEVELS, KAI_PREFERRED, KAI_REQUIRED, KAI_TOPOLOGY
from kaiwo.manifests.kinds.annotations import (
    KNOWN_ANNOTATIONS,
    KUEUE_QUEUE,
    OUR_PREFIX,
    UPSTREAM_PREFIX,
    Annotations,
    read_number,
)
from kaiwo.manifests.kinds.object_metadata import check_user
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.names import read_level, read_name
from kaiwo.manifests.values.priorities import DEFAULT_TYPE, MAX_PRIORITY, TYPE_PRIORITIES, read_type
from kaiwo.manifests.values.setting_values import read_flag
from kaiwo.model.errors import ConfigError
from kaiwo.model.network.constraint import STATED
from kaiwo.model.queue import DEFAULT_QUEUE
from kaiwo.model.workload import Workload

Texts = Mapping[str, str]


def read_workload_settings(
    owner: str,
    layers: Iterable[tuple[Texts, Texts]],
    priority: int,
    has_class: bool,
    is_ours: Callable[[str], bool] = lambda _: True,
    default_queue: str = DEFAULT_QUEUE,
) -> Workload:
    """`layers`: annotations and labels, the nearest first. Raises ConfigError for settings that make no sense.

    `priority`: as the server resolved it, 0 for a pod without a class; `has_class`: whether a class gave it. A written
    type replaces a missing class. The default type must not: it would lift every pod above classes with small values,
    and preempt them.
    `is_ours`: whether there is such a queue. Kueue's label names one of its own, which may be ours by the same name.
    `default_queue`: where nothing names one.
    """
    pairs = [(keep_settings(of_layer), keep_settings(labels)) for of_layer, labels in layers]
    pairs = [pair for pair in pairs if any(pair)]
    if not pairs:
        return Workload("", (), queue=default_queue, priority=priority)
    annotations = Annotations(owner)
    for of_layer, labels in pairs:
        annotations.add(FieldReader({"annotations": of_layer, "labels": labels}, owner, []))
    kind = annotations.read("type", read_type, "")
    by_type = bool(kind) and not has_class
    kind = kind or DEFAULT_TYPE
    user = annotations.text("user") or annotations.labels.get(UPSTREAM_PREFIX + "user", "")
    return Workload(
        "",
        (),
        queue=_queue(annotations, owner, is_ours) or default_queue,
        user=check_user(user, FieldPath(owner, "user")),
        kind=kind,
        priority=annotations.read("priority", _read_priority, TYPE_PRIORITIES[kind] if by_type else priority),
        held=annotations.read("hold", read_flag, False),
        **_with_levels_of_kai(annotations.settings(), pairs, owner),
    )


def read_valid_settings(
    owner: str,
    layers: Iterable[tuple[Texts, Texts]],
    priority: int,
    has_class: bool,
    is_ours: Callable[[str], bool] = lambda _: True,
    default_queue: str = DEFAULT_QUEUE,
) -> Workload:
    """The settings of work that already runs: invalid annotations are ignored."""
    left = [(keep_settings(annotations), keep_settings(labels)) for annotations, labels in layers]
    while True:
        try:
            return read_workload_settings(owner, left, priority, has_class, is_ours, default_queue)
        except ConfigError as error:
            texts = [each for pair in left for each in pair if error.field in each]
            if not texts:
                return Workload("", (), queue=default_queue, priority=priority)
            for each in texts:
                del each[error.field]


def _with_levels_of_kai(settings: dict[str, Any], layers: Iterable[tuple[Texts, Texts]], owner: str) -> dict[str, Any]:
    """The levels that KAI-Scheduler's annotations state, where ours state none. The nearest that state some count."""
    if any(settings.get(name) for name in ("required_level", "preferred_level", "roles_level", "segment_level")):
        return settings
    for notes, _ in layers:
        required, preferred = (
            read_level(notes[key], FieldPath(owner, key)) if notes.get(key) else ""
            for key in (KAI_REQUIRED, KAI_PREFERRED)
        )
        if required or preferred:
            found = {"topology": notes.get(KAI_TOPOLOGY, ""), "required_level": required, "preferred_level": preferred}
            return {"placement_strategy": STATED} | settings | found
    return settings


def keep_settings(texts: Texts | None) -> dict[str, str]:
    """Only those annotations or labels that are read here."""
    return {key: value for key, value in texts.items() if _is_read(key)} if texts else {}


def _is_read(key: str) -> bool:
    return (
        key == KUEUE_QUEUE
        or key in KAI_LEVELS
        or (key.startswith((OUR_PREFIX, UPSTREAM_PREFIX)) and key.partition("/")[2] in KNOWN_ANNOTATIONS)
    )


def _queue(annotations: Annotations, owner: str, is_ours: Callable[[str], bool]) -> str:
    labels = annotations.labels
    for field, value in (
        (OUR_PREFIX + "queue", annotations.text("queue")),
        (OUR_PREFIX + "queue", labels.get(OUR_PREFIX + "queue", "")),
        (KUEUE_QUEUE, labels.get(KUEUE_QUEUE, "")),
    ):
        if value and (field != KUEUE_QUEUE or is_ours(value)):
            return read_name(value, FieldPath(owner, field))
    return ""


def _read_priority(value: object, place: FieldPath) -> int:
    return read_number(value, place, -MAX_PRIORITY, MAX_PRIORITY)
