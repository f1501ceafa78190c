"""Join Pods that name the same gang into one workload.

In:    the work of one text.   Out: the same, with each gang as one workload whose pods start together.
A gang is named by `kaiwo.ai/gang` or by Kueue's pod-group label. All its pods are in one text: a gang that grew later
would have started incomplete.
"""

from typing import NamedTuple

import msgspec

from kaiwo.manifests.text.field_errors import FieldPath, quote_name
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import Program


class ManifestWork(NamedTuple):
    """One workload of a text, and the gang it belongs to."""

    workload: Workload
    program: Program
    owner: str = ""
    gang: str = ""
    gang_size: int = 0  # 0: nobody said
    leads: bool = False  # of its gang


def join_gangs(entries: list[ManifestWork]) -> list[tuple[Workload, Program]]:
    """In the order of the text; a gang stands where its first pod stood."""
    members: dict[tuple[str, str], list[ManifestWork]] = {}
    for entry in entries:
        if entry.gang:
            members.setdefault(_key(entry), []).append(entry)
    joined: list[tuple[Workload, Program]] = []
    for entry in entries:
        if not entry.gang:
            joined.append((entry.workload, entry.program))
        elif members[_key(entry)][0] is entry:
            joined.append(_join(members[_key(entry)]))
    return joined


def _key(entry: ManifestWork) -> tuple[str, str]:
    return entry.workload.name.partition("/")[0], entry.gang


def _join(entries: list[ManifestWork]) -> tuple[Workload, Program]:
    first = entries[0]
    size = max(entry.gang_size for entry in entries)
    path = FieldPath(f"gang {quote_name(first.gang)}", "kaiwo.ai/gang-size")
    if size and size != len(entries):
        raise path.error(f"is {size}, but the text has {len(entries)} of its pods; submit all of them in one text")
    for entry in entries:
        _check_alike(first, entry)
    namespace, gang = _key(first)
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
    for field in ("queue", "priority", "user", "kind", "preemptible"):
        if getattr(first.workload, field) != getattr(entry.workload, field):
            raise FieldPath(entry.owner, field).error(
                f"differs from that of {first.owner}, which is in the same gang; make them equal"
            )
    if first.program.command != entry.program.command:
        raise FieldPath(entry.owner, "command").error(
            f"differs from that of {first.owner}, which is in the same gang; run one script in all of them"
        )


def _roles(entries: list[ManifestWork]) -> tuple[Role, ...]:
    """Equal requests are one role, named after its first pod when there are several. Who leads is apart, and first."""
    counts: dict[tuple[bool, bytes], int] = {}
    named: dict[tuple[bool, bytes], Role] = {}
    for entry in sorted(entries, key=lambda entry: not entry.leads):
        role = entry.workload.roles[0]
        key = (entry.leads, msgspec.msgpack.encode(role.request))
        counts[key] = counts.get(key, 0) + 1
        named.setdefault(key, Role(role.request, name=entry.workload.name.partition("/")[2], leads=entry.leads))
    if len(named) == 1:
        return tuple(Role(role.request, count=counts[key]) for key, role in named.items())
    return tuple(msgspec.structs.replace(role, count=counts[key]) for key, role in named.items())
