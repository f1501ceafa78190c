"""The recordings of real controllers, where they lie beside the checkout."""

import json
from pathlib import Path
from typing import Any

import pytest

from kaiwo.clusters.kubernetes.gangs.gang_tracker import GangTracker
from kaiwo.clusters.kubernetes.gangs.metadata import Owner
from kaiwo.clusters.kubernetes.gangs.ownership import Member
from kaiwo.clusters.kubernetes.gangs.registry import read_owner
from tests.conformance.gangs.replay import read_member, replay, replay_folder
from tests.conftest import find_shared_dir

RECORDED = find_shared_dir() / "cases" / "workloads" / "recorded"


def read(name: str) -> dict[str, Any]:
    return json.loads((RECORDED / name).read_text())


def test_every_recording_agrees() -> None:
    report = replay_folder(RECORDED)
    assert report.failed == []
    assert report.total >= 90


@pytest.mark.parametrize("path", sorted(RECORDED.rglob("*.json")), ids=lambda path: path.stem)
def test_a_book_finds_the_same_gangs(path: Path) -> None:
    recording = json.loads(path.read_text())
    book = GangTracker()
    for raw in recording["pods"]:
        member = read_member(raw)
        assert isinstance(member, Member)
        book.upsert_pod(member)
    for raw in recording["parents"]:
        owner = read_owner(raw)
        assert isinstance(owner, Owner)
        book.upsert_owner(owner)
    found = [group for place in book.gang_ids() if (group := book.gang(place))]
    assert found == replay(recording["parents"], recording["pods"])[0]


def test_only_gangs_that_lack_pods_or_a_pod_group_wait() -> None:
    waiting = {
        path.stem: group.blocked_by
        for path in RECORDED.rglob("*.json")
        for recording in [json.loads(path.read_text())]
        for group in replay(recording["parents"], recording["pods"])[0]
        if group.blocked_by and len(recording["pods"]) == recording["pods_total"]
    }
    assert sorted(waiting) == [
        "serving-workloads__sample-leaderworkerset-tas",
        "workload-aware-scheduling__dra__jobset",
        "workload-aware-scheduling__jobset",
    ]
    assert "no StatefulSet nginx-leaderworkerset-" in waiting["serving-workloads__sample-leaderworkerset-tas"]
    assert "does not exist yet" in waiting["workload-aware-scheduling__jobset"]
