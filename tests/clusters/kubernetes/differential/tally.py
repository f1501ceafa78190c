"""How much of the ground the cases cover: by rule, how many pods may go nowhere, somewhere and everywhere."""

from collections.abc import Iterable

from tests.clusters.kubernetes.differential.compare import Case


def tally(cases: Iterable[Case]) -> dict[str, dict[str, int]]:
    """A rule that is only ever met everywhere, or nowhere, shows nothing."""
    found: dict[str, dict[str, int]] = {}
    for case in cases:
        where = "nowhere" if not case.theirs else "everywhere" if len(case.theirs) == case.nodes else "somewhere"
        for rule in case.rules:
            counts = found.setdefault(rule, {"nowhere": 0, "somewhere": 0, "everywhere": 0})
            counts[where] += 1
    return dict(sorted(found.items()))
