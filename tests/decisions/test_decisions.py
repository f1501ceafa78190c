"""A change of the core that changes no decision leaves every fingerprint as it is; any other is noticed here.

Where decisions are meant to change: `python -m tests.decisions` writes them anew, and the commit says why.
"""

import json
from pathlib import Path

import pytest

from tests.conftest import IS_QUICK, SIZE
from tests.decisions.fingerprints import fingerprints

RECORDED: dict[str, str] = json.loads((Path(__file__).parent / "recorded.json").read_text())
STORIES = len(RECORDED) if SIZE > 1 else 60 if IS_QUICK else 150


@pytest.mark.parametrize("seed", range(STORIES))
def test_a_story_is_decided_as_it_was_recorded(seed: int) -> None:
    now, then = fingerprints(seed).split(), RECORDED[str(seed)].split()
    other = [cycle for cycle, (one, two) in enumerate(zip(now, then, strict=True)) if one != two]
    assert not other, (
        f"story {seed} is decided differently from cycle {other[0]} on; if that is meant, run "
        "`python -m tests.decisions` and say in the commit what decides differently and why"
    )
