"""One short fingerprint a cycle of a story: two runs that decide the same have the same fingerprints.

In:    a seed.   Out: `a3f0 77c1 …`, one word a cycle.
A word covers the whole plan with the facts of its obstacles and, every few cycles, what else the core says of the
cluster (see `observer`). It leaves out which plugins there are: a new one that decides nothing changes no word.
"""

import hashlib
import json
from typing import Any

import msgspec

from tests.decisions.observer import Observer
from tests.decisions.stories import Story

CYCLES = 25
OF_WIDE = 10  # cycles where a story has many nodes: each takes five times as long
EVERY = 5  # cycles between two looks at everything else


def fingerprints(seed: int) -> str:
    """Of one story."""
    story, observer, words = Story(seed), Observer(seed), []
    for number, plan in enumerate(story.plans(OF_WIDE if story.flavour.wide else CYCLES)):
        told: list[Any] = [_encoded(plan)]
        if number % EVERY == EVERY - 1:
            told.append(_encoded(observer.look(story.world)))
        words.append(hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:4])
    return " ".join(words)


def _encoded(value: Any) -> Any:
    text = msgspec.json.encode(value, enc_hook=_plain, order="deterministic")
    return json.loads(text, object_hook=_without_plugins)


def _without_plugins(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in ("notes", "rules")}


def _plain(value: Any) -> Any:
    """Numbers of arrays."""
    return value.item()
