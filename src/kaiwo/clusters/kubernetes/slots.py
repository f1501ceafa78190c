"""Give the pods of a role their places in it: `role-0`, `role-1` and on, without a hole.

In:    who has which place, and who is there.   Out: a place for everybody.
A replaced pod has a new name and a new UID in Kubernetes; to the scheduler it is the same place in its workload.
"""

from collections.abc import Mapping, Sequence


def give_places(fixed: Sequence[str], others: Sequence[str], had: Mapping[str, int]) -> dict[str, int]:
    """By UID. The `fixed` (bound, or about to be) keep theirs if they can: it is told to the scheduler.

    The places are 0 to the number of pods, since every place that is free is one that the scheduler fills.
    """
    count = len(fixed) + len(others)
    places: dict[str, int] = {}
    taken: set[int] = set()
    for group in (fixed, others):
        for uid in group:
            place = had.get(uid, count)
            if place < count and place not in taken:
                places[uid] = place
                taken.add(place)
    free = iter(sorted(set(range(count)) - taken))
    for uid in (*fixed, *others):
        if uid not in places:
            places[uid] = next(free)
    return places
