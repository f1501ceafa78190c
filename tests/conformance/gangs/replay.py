"""Replay recordings of the pods that controllers made, and compare the gangs found in them with those expected.

In:    a folder of recordings, each `{parents, pods, expected_gang}`.   Out: one outcome a file, and the sums.
`expected_gang` is read to compare and for nothing else. A file may keep only the first of its pods, so members are
compared among the pods in the file, and groups without any pod in it are not asked for.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kaiwo.clusters.kubernetes.gangs.gang import Gang
from kaiwo.clusters.kubernetes.gangs.metadata import Metadata, TemplateSpec
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex
from kaiwo.clusters.kubernetes.gangs.registry import GangId, build_gang_of, find_gang, read_owner

Recording = dict[str, Any]


@dataclass
class Report:
    """How every recording of a folder ended."""

    total: int = 0
    failed: list[dict[str, str]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        return {"total": self.total, "passed": self.total - len(self.failed), "failed": self.failed}


def replay_folder(folder: Path) -> Report:
    """Every recording below a folder, in the order of their names; a broken one is a failure and stops nothing."""
    report = Report()
    for path in sorted(folder.rglob("*.json")):
        report.total += 1
        try:
            difference = compare(json.loads(path.read_text()))
        except (ValueError, KeyError, TypeError, AttributeError) as fault:
            difference = f"is no recording: {type(fault).__name__}: {fault}"
        if difference:
            report.failed.append({"file": str(path.relative_to(folder)), "difference": difference})
    return report


def compare(recording: Recording) -> str:
    """Empty when groups, minimums and members agree."""
    expected_groups = recording["expected_gang"]["groups"]
    found, unreadable = replay(recording["parents"], recording["pods"])
    present = {pod["metadata"]["name"] for pod in recording["pods"]}
    expected = Counter(
        (each["min_members"], members)
        for each in expected_groups
        if (members := tuple(sorted(present.intersection(each["pods"]))))
    )
    got = Counter((group.minimum, group.members) for group in found)
    if got == expected:
        return ""
    parts = [f"expected {_show(*each)}" for each in sorted((expected - got).elements())]
    parts += [f"found {_show(*each)}" for each in sorted((got - expected).elements())]
    return "; ".join(parts + unreadable)


def replay(parents: list[Any], pods: list[Any]) -> tuple[list[Gang], list[str]]:
    """The gangs, and a sentence for each object that could not be read."""
    owners = OwnerIndex()
    unreadable = []
    for parent in parents:
        owner = read_owner(parent)
        if isinstance(owner, str):
            unreadable.append(owner)
        else:
            owners.upsert(owner)
    members = []
    for pod in pods:
        member = read_member(pod)
        if isinstance(member, str):
            unreadable.append(member)
        else:
            members.append(member)
    return build_gangs(members, owners)[0], unreadable


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str | None = None
    conditions: tuple[_Condition, ...] | None = None


class _Spec(TemplateSpec, frozen=True, rename="camel"):
    node_name: str | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _Spec | None = None
    status: _Status | None = None


def read_member(raw: object) -> Member | str:
    """A pod as the API server gives it, decoded from JSON; a sentence where it cannot be."""
    try:
        pod = msgspec.convert(raw, _Pod)
    except msgspec.ValidationError as fault:
        return f"a pod cannot be read ({fault}); it is in no gang"
    metadata, spec, status = pod.metadata, pod.spec or _Spec(), pod.status or _Status()
    if not metadata.name:
        return "a pod without a name cannot be read; it is in no gang"
    workload = spec.workload_ref
    return Member(
        name=metadata.name,
        namespace=metadata.namespace or "",
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        owner=metadata.owner,
        node=spec.node_name or "",
        phase=status.phase or "Pending",
        is_ready=any(each.type == "Ready" and each.status == "True" for each in status.conditions or ()),
        is_leaving=metadata.deletion_timestamp is not None,
        pod_group=(spec.scheduling_group and spec.scheduling_group.pod_group_name) or "",
        workload=(
            (workload.name or "", workload.pod_group or "", workload.pod_group_replica_key or "")
            if workload
            else ("", "", "")
        ),
    )


def build_gangs(members: Iterable[Member], owners: OwnerIndex) -> tuple[list[Gang], list[Member]]:
    """Everything at once: the gangs by key, and the pods on their own by name."""
    together: dict[GangId, list[Member]] = {}
    alone: list[Member] = []
    for member in members:
        gang_id = find_gang(member, owners)
        if gang_id is None:
            alone.append(member)
        else:
            together.setdefault(gang_id, []).append(member)
    groups: list[Gang] = []
    for gang_id, own in sorted(together.items()):
        group = build_gang_of(gang_id, own, owners)
        if group is None:
            alone += [each for each in own if each.is_alive]
        else:
            groups.append(group)
    return groups, sorted(alone, key=lambda each: (each.namespace, each.name))


def _show(minimum: int, members: tuple[str, ...]) -> str:
    return f"at least {minimum} of {len(members)} pods ({', '.join(members[:3])}{', ...' if len(members) > 3 else ''})"
