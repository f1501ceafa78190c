"""Write a change of a workload as annotations of its pods, or say why no annotation can express it.

In:    the workload before and after.   Out: the annotations; None removes one.
"""

from collections.abc import Callable

from msgspec.structs import fields, replace

from kaiwo.manifests.kinds.annotations import OUR_PREFIX, UPSTREAM_PREFIX
from kaiwo.manifests.values.progress import progress_text
from kaiwo.manifests.write_manifest import gpu_texts, setting_text, timestamp_text
from kaiwo.model.errors import RefusedError
from kaiwo.model.performance import ProgressReport
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.model.workload_fields import FIELDS

Notes = dict[str, str | None]
HOLD = OUR_PREFIX + "hold"
FIELDS_WHILE_RUNNING = frozenset({"priority", "time_limit_s", "estimate_s"})
_SETTINGS = {field.name: field for field in FIELDS}
_TEXTS: dict[str, Callable[[Workload], str | None]] = {
    "priority": lambda workload: str(workload.priority),
    "queue": lambda workload: workload.queue,
}


def changed_fields(before: Workload, after: Workload) -> set[str]:
    return {field.name for field in fields(before) if getattr(before, field.name) != getattr(after, field.name)}


def annotations_of_change(before: Workload, after: Workload, way_out: str) -> Notes:
    """Raises RefusedError for a size that is in the containers of its pods, and not in an annotation."""
    notes: Notes = {}
    for name in changed_fields(before, after):
        if name == "roles":
            notes |= _share_notes(before, after, way_out)
        elif name == "held":
            notes |= held_annotations(after.held)
        elif name in _TEXTS:
            notes[OUR_PREFIX + name] = _TEXTS[name](after)
        else:
            notes |= _with_upstream(_SETTINGS[name].annotation, setting_text(after, _SETTINGS[name]))
    return notes


def held_annotations(is_held: bool) -> Notes:
    """A written "false" holds against an owner that says "true"."""
    return {HOLD: "true" if is_held else "false"}


def checkpoint_annotations(at_s: int) -> Notes:
    return {OUR_PREFIX + "last-checkpoint": timestamp_text(at_s)}


def progress_annotations(report: ProgressReport) -> Notes:
    return {OUR_PREFIX + "progress": progress_text(report)}


def _with_upstream(key: str, text: str | None) -> Notes:
    """A setting that is cleared must not come back from its other name."""
    return {key: text} if text is not None else {key: None, key.replace(OUR_PREFIX, UPSTREAM_PREFIX): None}


def _share_notes(before: Workload, after: Workload, way_out: str) -> Notes:
    """A share of a GPU is in annotations; everything else that a pod asks for is in its containers."""
    (old, *others), new = before.roles, after.roles[0]
    share = {"gpu_milli": new.request.gpu_milli, "gpu_mib": new.request.gpu_mib}
    if others or replace(old, request=replace(old.request, **share)) != new or not _is_share(old.request):
        raise RefusedError(
            f"workload {before.name}: the containers of its pods say how large it is, and Kubernetes lets nobody "
            f"change them; {way_out}",
            "size",
        )
    fraction, memory = gpu_texts(new.request)
    return {
        **_with_upstream(OUR_PREFIX + "gpu-fraction", fraction),
        **_with_upstream(OUR_PREFIX + "gpu-memory", memory),
    }


def _is_share(request: Request) -> bool:
    return request.is_fraction or request.is_memory
