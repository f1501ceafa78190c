"""Every field of every kind of object, once absent, null or of a wrong type: told, never raised."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.gangs.replay import replay
from tests.conformance.gangs.stories import STORIES

ABSENT = object()
WRONG = {"absent": ABSENT, "null": None, "text": "x", "number": -7, "list": ["x"], "map": {"x": {}}}
Path = tuple[Any, ...]


def paths_in(node: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in an object."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from paths_in(value, (*path, key))


def places() -> dict[tuple[Any, ...], tuple[str, int, Path]]:
    """One example of each place: a kind, and the path in it without the numbers of list items."""
    found: dict[tuple[Any, ...], tuple[str, int, Path]] = {}
    for name, story in STORIES.items():
        for number, each in enumerate(story["parents"] + story["pods"]):
            for path in paths_in(each):
                shape = (each["kind"], *("*" if isinstance(key, int) else key for key in path))
                found.setdefault(shape, (name, number, path))
    return found


@pytest.mark.parametrize("wrong", WRONG)
def test_a_spoiled_field_is_told_or_does_not_matter(wrong: str) -> None:
    tried = 0
    for name, number, path in places().values():
        story = copy.deepcopy(STORIES[name])
        spoil((story["parents"] + story["pods"])[number], path, WRONG[wrong])
        groups, unreadable = replay(story["parents"], story["pods"])
        tried += 1
        assert all(unreadable)
        for group in groups:
            assert group.members, path
            assert group.blocked_by or len(group.members) >= group.minimum, path
    assert tried > 200


def spoil(node: Any, path: Path, value: Any) -> None:
    *above, last = path
    for key in above:
        node = node[key]
    if value is ABSENT:
        del node[last]
    else:
        node[last] = value
