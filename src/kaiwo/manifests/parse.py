"""From documents to our words, whatever kind each document is.

In:    text, or documents, and the caller's defaults.   Out: one Parsed, or one ConfigError.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kaiwo.manifests.kinds import partitioning_plan
from kaiwo.manifests.kinds.job import read_job_object, read_pod_object
from kaiwo.manifests.kinds.join_gangs import ManifestWork, join_gangs
from kaiwo.manifests.kinds.kaiwojob import read_kaiwojob
from kaiwo.manifests.kinds.object_metadata import NO_DEFAULTS, Defaults, ManifestObject, Parsed
from kaiwo.manifests.kinds.queue import read_queue
from kaiwo.manifests.kinds.reservation import KIND as RESERVATION
from kaiwo.manifests.kinds.reservation import read_reservation
from kaiwo.manifests.short_form.read_submission import read_short_form
from kaiwo.manifests.text.document_limits import check_tree
from kaiwo.manifests.text.field_errors import FieldPath, quote_name, show, suggest
from kaiwo.manifests.text.read_documents import LIMIT_BYTES, read_documents, read_json
from kaiwo.model.errors import ConfigError
from kaiwo.model.partitioning_plan import PartitioningPlan
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation

MAX_WORKLOADS = 10_000  # in one text
MAX_PODS_IN_ALL = 100_000  # in one text
MAX_WARNINGS = 100

_WORK: dict[tuple[str, str], Callable[[ManifestObject], ManifestWork]] = {
    ("kaiwo.silogen.ai/v1alpha1", "KaiwoJob"): read_kaiwojob,
    ("batch/v1", "Job"): read_job_object,
    ("v1", "Pod"): read_pod_object,
}
_VERSIONS = {kind: version for version, kind in _WORK} | {
    "KaiwoQueue": "kaiwo.ai/v1alpha2",
    RESERVATION: "kaiwo.ai/v1alpha2",
    "Workload": "kaiwo.ai/v1alpha2",
    partitioning_plan.KIND: partitioning_plan.API_VERSION,
}
# They bring no work, so a file may carry them along.
_SKIPPED = frozenset(
    (
        "ConfigMap", "KaiwoConfig", "LimitRange", "Namespace", "NetworkPolicy", "PersistentVolume",
        "PersistentVolumeClaim", "PriorityClass", "ResourceQuota", "Role", "RoleBinding", "Secret", "Service",
        "ServiceAccount", "StorageClass",
    )
)  # fmt: skip


def parse(document: Mapping[str, Any], defaults: Defaults = NO_DEFAULTS) -> Parsed:
    return parse_documents([document], defaults)


def parse_all(text: str | bytes, defaults: Defaults = NO_DEFAULTS, limit_bytes: int = LIMIT_BYTES) -> Parsed:
    return parse_documents(read_documents(text, limit_bytes), defaults)


def parse_submission(form: str | bytes | Mapping[str, Any], defaults: Defaults = NO_DEFAULTS) -> Parsed:
    """One workload in short form: JSON text, or the mapping itself."""
    document = dict(form) if isinstance(form, Mapping) else read_json(form)
    if document.get("kind", "Workload") != "Workload":
        raise FieldPath("the form", "kind").error(f"is {show(document['kind'])}; write Workload, or leave it out")
    reader = _Reader(defaults)
    reader.read(document, "the form")
    return reader.parsed()


def parse_documents(documents: Sequence[Any], defaults: Defaults = NO_DEFAULTS) -> Parsed:
    """All of them together: gangs are joined, and no name may stand twice."""
    reader = _Reader(defaults)
    for number, document in enumerate(documents, start=1):
        reader.read(document, f"document {number}")
    return reader.parsed()


class _Reader:
    def __init__(self, defaults: Defaults) -> None:
        self.defaults = defaults
        self.entries: list[ManifestWork] = []
        self.queues: list[Queue] = []
        self.reservations: list[Reservation] = []
        self.partitioning: list[PartitioningPlan] = []
        self.warnings: list[str] = []
        self._pods = 0

    def read(self, document: Any, where: str, inside_list: bool = False) -> None:
        if not isinstance(document, dict):
            raise ConfigError(f"{where} is not a mapping; write fields such as `name: train`", where)
        check_tree(document, where)
        kind = _read_kind(document, where)
        if kind == "Workload":
            for workload, program in read_short_form(document, where, self.defaults, self.warnings):
                self._add(ManifestWork(workload, program), where)
        elif kind == "List" or kind.endswith("List"):
            self._read_list(document, where, inside_list)
        elif kind in _SKIPPED:
            self.warnings.append(f"{where}: a {kind} brings no work and is left out")
        elif kind == "KaiwoQueue":
            self.queues.append(read_queue(ManifestObject(document, where, self.defaults, self.warnings)))
        elif kind == partitioning_plan.KIND:
            item = ManifestObject(document, where, self.defaults, self.warnings)
            self.partitioning.append(partitioning_plan.read_plan(item))
        elif kind == RESERVATION:
            self.reservations.append(read_reservation(ManifestObject(document, where, self.defaults, self.warnings)))
        else:
            self._read_work(document, where, kind)

    def parsed(self) -> Parsed:
        submissions = join_gangs(self.entries)
        _check_unique([workload.name for workload, _ in submissions], "workload")
        _check_unique([queue.name for queue in self.queues], "queue")
        _check_unique([reservation.name for reservation in self.reservations], "reservation")
        _check_unique([plan.name for plan in self.partitioning], "PartitioningPlan")
        warnings = list(dict.fromkeys(self.warnings))
        more = len(warnings) - MAX_WARNINGS
        said = [*warnings[:MAX_WARNINGS], f"and {more} more warnings"] if more > 0 else warnings
        rest = (tuple(self.reservations), tuple(self.partitioning))
        return Parsed(tuple(submissions), tuple(self.queues), tuple(said), *rest)

    def _read_work(self, document: dict[str, Any], where: str, kind: str) -> None:
        item = ManifestObject(document, where, self.defaults, self.warnings)
        self._add(_WORK[_VERSIONS[kind], kind](item), where)

    def _read_list(self, document: dict[str, Any], where: str, inside_list: bool) -> None:
        items = document.get("items")
        if inside_list or not isinstance(items, list | tuple):
            raise ConfigError(f"{where} is a list without plain items; write each object as its own document", where)
        for index, item in enumerate(items):
            self.read(item, f"{where}, item {index + 1}", inside_list=True)

    def _add(self, entry: ManifestWork, where: str) -> None:
        self.entries.append(entry)
        self._pods += entry.workload.pods
        if len(self.entries) > MAX_WORKLOADS:
            raise ConfigError(f"{where}: the text asks for more than {MAX_WORKLOADS:,} workloads; split it", where)
        if self._pods > MAX_PODS_IN_ALL:
            raise ConfigError(f"{where}: the text asks for more than {MAX_PODS_IN_ALL:,} pods; split it", where)


def _read_kind(document: Mapping[str, Any], where: str) -> str:
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind is None and "kind" not in document and version in (None, "kaiwo.ai/v1alpha2"):
        return "Workload"
    readable = f"{', '.join(_VERSIONS)}"
    if kind is None:
        raise FieldPath(where, "kind").error(
            f"is missing; write one of {readable}, or leave apiVersion out for the short form"
        )
    if not isinstance(kind, str):
        raise FieldPath(where, "kind").error(f"is {show(kind)}; write one of {readable}")
    if version is not None and not isinstance(version, str):
        raise FieldPath(where, "apiVersion").error(f"is {show(version)}; write text, such as v1")
    if kind in _SKIPPED or kind.endswith("List"):
        return kind
    if kind not in _VERSIONS:
        raise FieldPath(where, "kind").error(
            f"is {show(kind)}, which is not read here; use one of {readable}{suggest(kind, _VERSIONS)}"
        )
    if version is not None and version != _VERSIONS[kind]:
        raise FieldPath(where, "apiVersion").error(
            f"is {show(version)}, but a {kind} is read as {_VERSIONS[kind]}; write that"
        )
    return kind


def _check_unique(names: list[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise FieldPath(f"{what} {quote_name(name)}", "name").error(
                "stands twice in the text; rename one of the two"
            )
        seen.add(name)
