"""Parse text or documents of all kinds into workloads, queues, reservations, topologies and partitioning plans."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kaiwo.manifests.kinds import partitioning_plan, topology
from kaiwo.manifests.kinds.job import read_job_object, read_pod_object
from kaiwo.manifests.kinds.kaiwojob import read_kaiwojob
from kaiwo.manifests.kinds.object_metadata import NO_DEFAULTS, ManifestDefaults, ManifestObject, ManifestWork, Parsed
from kaiwo.manifests.kinds.queue import read_queue
from kaiwo.manifests.kinds.reservation import KIND as RESERVATION
from kaiwo.manifests.kinds.reservation import read_reservation
from kaiwo.manifests.short_form.read_submission import read_short_form
from kaiwo.manifests.text.document_limits import check_tree
from kaiwo.manifests.text.field_errors import FieldPath, quote_name, show, suggest
from kaiwo.manifests.text.read_documents import LIMIT_BYTES, read_documents
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan
from kaiwo.model.network.topology import Topology
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import Program

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
    topology.KIND: topology.API_VERSION,
}
# These describe no workload, so a file may contain them.
_SKIPPED = frozenset(
    (
        "ConfigMap", "KaiwoConfig", "LimitRange", "Namespace", "NetworkPolicy", "PersistentVolume",
        "PersistentVolumeClaim", "PriorityClass", "ResourceQuota", "Role", "RoleBinding", "Secret", "Service",
        "ServiceAccount", "StorageClass",
    )
)  # fmt: skip


def parse(document: Mapping[str, Any], defaults: ManifestDefaults = NO_DEFAULTS) -> Parsed:
    return parse_documents([document], defaults)


def parse_all(text: str | bytes, defaults: ManifestDefaults = NO_DEFAULTS, limit_bytes: int = LIMIT_BYTES) -> Parsed:
    return parse_documents(read_documents(text, limit_bytes), defaults)


def parse_documents(documents: Sequence[Any], defaults: ManifestDefaults = NO_DEFAULTS) -> Parsed:
    """All documents together: gangs are joined, and names must be unique."""
    reader = _Reader(defaults)
    for number, document in enumerate(documents, start=1):
        reader.read(document, f"document {number}")
    return reader.parsed()


class _Reader:
    def __init__(self, defaults: ManifestDefaults) -> None:
        self.defaults = defaults
        self.entries: list[ManifestWork] = []
        self.queues: list[Queue] = []
        self.reservations: list[Reservation] = []
        self.partitioning: list[PartitioningPlan] = []
        self.topologies: list[Topology] = []
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
            self.warnings.append(f"{where}: a {kind} describes no workload and is left out")
        else:
            self._read_object(kind, ManifestObject(document, where, self.defaults, self.warnings), where)

    def parsed(self) -> Parsed:
        submissions = _join_gangs(self.entries)
        _check_unique([workload.name for workload, _ in submissions], "workload")
        _check_unique([queue.name for queue in self.queues], "queue")
        _check_unique([reservation.name for reservation in self.reservations], "reservation")
        _check_unique([plan.name for plan in self.partitioning], "PartitioningPlan")
        _check_unique([each.name for each in self.topologies], topology.KIND)
        warnings = list(dict.fromkeys(self.warnings))
        more = len(warnings) - MAX_WARNINGS
        if more > 0:
            warnings[MAX_WARNINGS:] = [f"and {more} more warnings"]
        return Parsed(
            tuple(submissions),
            tuple(self.queues),
            tuple(warnings),
            tuple(self.reservations),
            tuple(self.partitioning),
            tuple(self.topologies),
            {entry.workload.name: entry.total for entry in self.entries if entry.total is not None},
        )

    def _read_object(self, kind: str, item: ManifestObject, where: str) -> None:
        if kind == "KaiwoQueue":
            self.queues.append(read_queue(item))
        elif kind == partitioning_plan.KIND:
            self.partitioning.append(partitioning_plan.read_plan(item))
        elif kind == topology.KIND:
            self.topologies.append(topology.read_topology(item))
        elif kind == RESERVATION:
            self.reservations.append(read_reservation(item))
        else:
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
    readable = ", ".join(_VERSIONS)
    path, version_path = FieldPath(where, "kind"), FieldPath(where, "apiVersion")
    if kind is None:
        raise path.error(f"is missing; write one of {readable}, or leave apiVersion out for the short form")
    if not isinstance(kind, str):
        raise path.error(f"is {show(kind)}; write one of {readable}")
    if version is not None and not isinstance(version, str):
        raise version_path.error(f"is {show(version)}; write text, such as v1")
    if kind in _SKIPPED or kind.endswith("List"):
        return kind
    if kind not in _VERSIONS:
        raise path.error(f"is {show(kind)}, which is not read here; use one of {readable}{suggest(kind, _VERSIONS)}")
    if version is not None and version != _VERSIONS[kind]:
        raise version_path.error(f"is {show(version)}, but a {kind} is read as {_VERSIONS[kind]}; write that")
    return kind


def _check_unique(names: list[str], what: str) -> None:
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        path = FieldPath(f"{what} {quote_name(twice)}", "name")
        raise path.error("appears twice in the text; rename one of the two")


def _join_gangs(entries: list[ManifestWork]) -> list[tuple[Workload, Program]]:
    """Join pods that name the same gang into one workload, which takes the place of the first of them.

    All pods of a gang must be in one text: a gang that grew later would have started incomplete.
    """
    members: dict[tuple[str, str], list[ManifestWork]] = {}
    for entry in entries:
        if entry.gang:
            members.setdefault(_gang_key(entry), []).append(entry)
    joined: list[tuple[Workload, Program]] = []
    for entry in entries:
        if not entry.gang:
            joined.append((entry.workload, entry.program))
        elif members[_gang_key(entry)][0] is entry:
            joined.append(_join_gang(members[_gang_key(entry)]))
    return joined


def _gang_key(entry: ManifestWork) -> tuple[str, str]:
    return entry.workload.name.partition("/")[0], entry.gang


def _join_gang(entries: list[ManifestWork]) -> tuple[Workload, Program]:
    first = entries[0]
    size = max(entry.gang_size for entry in entries)
    if size and size != len(entries):
        path = FieldPath(f"gang {quote_name(first.gang)}", "kaiwo.ai/gang-size")
        raise path.error(f"is {size}, but the text has {len(entries)} of its pods; submit all of them in one text")
    for entry in entries:
        _check_alike(first, entry)
    namespace, gang = _gang_key(first)
    workload = msgspec.structs.replace(
        first.workload,
        name=f"{namespace}/{gang}",
        roles=_roles(entries),
        held=any(entry.workload.held for entry in entries),
        time_limit_s=min((e.workload.time_limit_s for e in entries if e.workload.time_limit_s), default=0),
    )
    return workload, first.program


def _check_alike(first: ManifestWork, entry: ManifestWork) -> None:
    """One workload has one queue, one priority, one user and one program."""
    differs = f"differs from that of {first.owner}, which is in the same gang"
    for field in ("queue", "priority", "user", "kind", "preemptible"):
        if getattr(first.workload, field) != getattr(entry.workload, field):
            raise FieldPath(entry.owner, field).error(f"{differs}; make them equal")
    if first.program.command != entry.program.command:
        raise FieldPath(entry.owner, "command").error(f"{differs}; run one script in all of them")


def _roles(entries: list[ManifestWork]) -> tuple[Role, ...]:
    """Equal requests are one role, named after its first pod if there are several roles. The leader's role is first."""
    counts = Counter[tuple[bool, bytes]]()
    named: dict[tuple[bool, bytes], Role] = {}
    for entry in sorted(entries, key=lambda entry: not entry.leads):
        role = entry.workload.roles[0]
        key = (entry.leads, msgspec.msgpack.encode(role.request))
        counts[key] += 1
        named.setdefault(key, Role(role.request, name=entry.workload.name.partition("/")[2], leads=entry.leads))
    if len(named) == 1:
        return tuple(Role(role.request, count=counts[key]) for key, role in named.items())
    return tuple(msgspec.structs.replace(role, count=counts[key]) for key, role in named.items())
