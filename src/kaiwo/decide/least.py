"""The least of a waiting class that would do: what room is made for, and what its queue pays first."""

from kaiwo.snapshot.backlog import Needs, WaitingClass, chosen


def one_more(found: WaitingClass) -> Needs:
    """What room is made for: the pods without which the workload does not start, or one more of one that runs."""
    if any(needed for _, _, needed in found.needs):
        return found.needs
    if found.choices is not None:
        return chosen(found.needs, found.choices.needed[0])
    (shape, missing, _), *rest = found.needs
    return ((shape, missing, 1), *rest)


def must_pay(found: WaitingClass) -> Needs:
    """What a queue pays for before such work has started; of sub-groups the next that would."""
    return found.needs if found.choices is None else one_more(found)


def each_way(found: WaitingClass) -> list[Needs]:
    """All that would do for work with sub-groups, the cheapest first."""
    return [] if found.choices is None else [chosen(found.needs, needed) for needed in found.choices.needed]
