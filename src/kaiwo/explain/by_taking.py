"""A higher limit or quota that does not start a workload at once, and lets others be stopped for it.

In:    a Question that no single change answers.   Out: the raise, verified by a whole cycle; None: there is none.
"""

import numpy as np

from kaiwo.explain.change import Change
from kaiwo.explain.quota import only_raise
from kaiwo.explain.room import Room
from kaiwo.explain.trial import Question
from kaiwo.queues.reclaim_rules import Claim, victim_queues
from kaiwo.queues.share import standing

MOST_CLASSES = 100  # who wait: a whole cycle of 1,000 different ones takes half a second


def raise_that_takes(question: Question) -> tuple[Change | None, bool]:
    """Where one bound leaves too little: raised to what the workload pays at least; and whether that was tried."""
    backlog, nothing = question.picture.backlog, (None, True)
    if question.name in backlog.gate or question.name in question.picture.pods or backlog.all_open:
        return nothing
    if backlog.stand_of(question.name)[0].key in backlog.open:
        return nothing
    found = only_raise(question, Room(question))
    if found is None or not _has_victims(question, found[1]):
        return nothing
    if len(backlog.by_key) > MOST_CLASSES:
        return found[0], False
    return (found[0] if question.is_served_with(found[0]) else None), True


def _has_victims(question: Question, need: tuple[int, ...]) -> bool:
    """Somebody has more than is protected from such a claim: most cycles need not be tried."""
    now = standing(question.view)
    claim = Claim(now.queues.row[question.workload.queue], np.array(need), question.workload.preemptible)
    return bool(victim_queues(now, claim).any())
