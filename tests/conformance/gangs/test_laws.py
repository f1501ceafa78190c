"""Laws of gangs: the order of objects, foreign fields and foreign pods change nothing; garbage is told, not raised."""

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kaiwo.clusters.kubernetes.gangs.gang import Gang
from kaiwo.clusters.kubernetes.gangs.gang_tracker import GangTracker
from kaiwo.clusters.kubernetes.gangs.metadata import Owner
from kaiwo.clusters.kubernetes.gangs.ownership import Member
from kaiwo.clusters.kubernetes.gangs.registry import read_owner
from tests.conformance.gangs import objects as o
from tests.conformance.gangs.replay import build_gangs, read_member, replay
from tests.conformance.gangs.stories import STORIES

stories = st.sampled_from(sorted(STORIES)).map(lambda name: STORIES[name])
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def groups_in(parents: list[Any], pods: list[Any]) -> list[Gang]:
    return replay(parents, pods)[0]


@given(stories, st.randoms(use_true_random=False))
def test_the_order_of_the_objects_does_not_matter(story: dict[str, Any], random: Any) -> None:
    parents, pods = list(story["parents"]), list(story["pods"])
    random.shuffle(parents)
    random.shuffle(pods)
    assert groups_in(parents, pods) == groups_in(story["parents"], story["pods"])


@given(stories, st.dictionaries(st.text(st.characters(codec="ascii"), min_size=1).map("x-{}".format), junk, max_size=3))
def test_an_unknown_field_changes_nothing(story: dict[str, Any], extra: dict[str, Any]) -> None:
    changed = copy.deepcopy(story)
    words = {name: json.dumps(value) for name, value in extra.items()}
    for each in (*changed["parents"], *changed["pods"]):
        each |= extra
        each["metadata"] |= extra
        for part in ("labels", "annotations"):
            each["metadata"][part] = {**each["metadata"].get(part, {}), **words}
        for part in ("spec", "status"):
            each[part] = {**each.get(part, {}), **extra}
    assert groups_in(changed["parents"], changed["pods"]) == groups_in(story["parents"], story["pods"])


@given(stories, stories)
def test_pods_of_somebody_else_change_nothing(story: dict[str, Any], other: dict[str, Any]) -> None:
    moved = json.loads(json.dumps(other).replace('"namespace": "default"', '"namespace": "elsewhere"'))
    for each in (*moved["parents"], *moved["pods"]):
        each["metadata"]["uid"] = f"other-{each['metadata']['uid']}"
        for reference in each["metadata"].get("ownerReferences", []):
            reference["uid"] = f"other-{reference['uid']}"
    together = groups_in(story["parents"] + moved["parents"], story["pods"] + moved["pods"])
    assert [each for each in together if each.key.namespace == "default"] == groups_in(story["parents"], story["pods"])


@given(stories, st.data())
def test_a_pod_that_goes_changes_no_gang_but_its_own(story: dict[str, Any], data: st.DataObject) -> None:
    before = groups_in(story["parents"], story["pods"])
    gone = data.draw(st.sampled_from(story["pods"]))
    after = groups_in(story["parents"], [pod for pod in story["pods"] if pod is not gone])
    name, is_alive = gone["metadata"]["name"], read_member(gone).is_alive  # type: ignore[union-attr]
    # A pod that has finished still counts in what its own gang wants.
    if is_alive:
        assert [each for each in before if name not in each.members] == [
            each for each in after if each.key not in {group.key for group in before if name in group.members}
        ]


@given(stories, st.data())
def test_every_pod_is_in_one_gang_at_most(story: dict[str, Any], data: st.DataObject) -> None:
    kept = [pod for pod in story["pods"] if data.draw(st.booleans())]
    names = [name for group in groups_in(story["parents"], kept) for name in group.members]
    assert sorted(names) == sorted(set(names))
    assert set(names) <= {pod["metadata"]["name"] for pod in kept}


@given(junk)
def test_garbage_is_no_pod_and_no_owner(raw: Any) -> None:
    for found in (read_member(raw), read_owner(raw)):
        assert isinstance(found, str | Member | Owner)


@given(stories, st.data())
def test_garbage_inside_an_object_is_told(story: dict[str, Any], data: st.DataObject) -> None:
    broken = copy.deepcopy(story)
    objects = broken["parents"] + broken["pods"]
    for _ in range(data.draw(st.integers(1, 3))):
        _spoil(data.draw(st.sampled_from(objects)), data)
    groups, unreadable = replay(broken["parents"], broken["pods"])
    assert all(isinstance(each, str) and each for each in unreadable)
    for group in groups:
        assert group.minimum >= 1
        assert group.members
        assert group.blocked_by or len(group.members) >= group.minimum


def _spoil(node: Any, data: st.DataObject) -> None:
    """Walk down a few steps and put junk there."""
    while isinstance(node, dict) and node:
        key = data.draw(st.sampled_from(sorted(node)))
        if not isinstance(node[key], dict) or not node[key] or data.draw(st.booleans()):
            node[key] = data.draw(junk)
            return
        node = node[key]


@given(st.lists(stories, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_a_book_kept_up_to_date_equals_one_written_anew(told: list[dict[str, Any]], random: Any) -> None:
    """Objects come and go in any order; only the gangs that the book calls touched are worked out anew."""
    book, known = GangTracker(), {}
    living: dict[str, Member | Owner] = {}
    events = [each for story in told for each in (*story["parents"], *story["pods"])] * 2
    random.shuffle(events)
    for raw in events:
        name = f"{raw['apiVersion']}/{raw['kind']}/{raw['metadata']['name']}"
        touched = _remove(book, living.pop(name)) if name in living else _put(book, living, name, raw)
        for place in touched:
            known[place] = book.gang(place)
        members = [each for each in living.values() if isinstance(each, Member)]
        expected, _ = build_gangs(members, book.owners)
        assert sorted((group for group in known.values() if group), key=_key) == sorted(expected, key=_key)


def _key(group: Gang) -> str:
    return str(group.key) + group.key.uid


def _put(book: GangTracker, living: dict[str, Member | Owner], name: str, raw: o.Object) -> Any:
    found = read_member(raw) if raw["kind"] == "Pod" else read_owner(raw)
    assert not isinstance(found, str)
    living[name] = found
    return book.upsert_pod(found) if isinstance(found, Member) else book.upsert_owner(found)


def _remove(book: GangTracker, found: Member | Owner) -> Any:
    return book.delete_pod(found.namespace, found.name) if isinstance(found, Member) else book.delete_owner(found)
