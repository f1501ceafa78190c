"""Play a scenario: one pass of some actions, or whole cycles until the state settles.

In:    a case.   Out: what differs from what it expects, empty when it passes.
`expected` and `max_api_calls` are read only to compare, never to decide.
"""

from typing import Any

from tests.conformance.kai.loader import load


class NotPlayedError(Exception):
    """The case cannot be played yet."""


def play(case: dict[str, Any]) -> list[str]:
    """Load the case into our words, decide, and compare."""
    loaded = load(case)
    if loaded.missing:
        raise NotPlayedError("the model has no words for: " + "; ".join(loaded.missing))
    if case["mode"] not in PLAYERS:
        raise NotPlayedError(f"no player for mode {case['mode']}")
    return PLAYERS[case["mode"]](case, loaded)


# mode -> player; a player takes the case and what the loader made of it and returns the differences.
PLAYERS: dict[str, Any] = {}
