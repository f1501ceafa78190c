"""Replay recordings of the pods that controllers made, and compare the gangs found in them with those expected.

In:    a folder of recordings, each `{parents, pods, expected_gang}`.   Out: one outcome a file, and the sums.
`expected_gang` is read to compare and for nothing else. A file may keep only the first of its pods, so members are
compared among the pods in the file, and groups without any pod in it are not asked for.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kaiwo.clusters.kubernetes.gangs import Gang, OwnerIndex, build_gangs, read_member, read_owner

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


def _show(minimum: int, members: tuple[str, ...]) -> str:
    return f"at least {minimum} of {len(members)} pods ({', '.join(members[:3])}{', ...' if len(members) > 3 else ''})"
