"""Why nothing is taken from others, in words.

In:    one Obstacle of those that only a cycle can tell.   Out: what is in the way, with numbers.
"""

from kaiwo.decide.make_room.node_bounds import ON_ONE_NODE, ROOM
from kaiwo.explain.planned_start_sentences import gap_words
from kaiwo.model.amounts import amount
from kaiwo.model.obstacle import Obstacle
from kaiwo.queues.reclaim_rules import Rule

IF_ALL_WENT = "even if all went that may be stopped or moved for it"


def may_not_take(o: Obstacle) -> str:
    """Its queue may not."""
    if o.detail == Rule.NEVER_RECLAIMS:
        return f"queue '{o.subject}' takes nothing from others: its reclaimStrategy is none"
    bound = "its quota" if o.detail == Rule.OVER_QUOTA else "its fair share"
    return (
        f"queue '{o.subject}' may not take from others: with this it would use {amount(o.need, o.unit)}, "
        f"and {bound} is {amount(o.have, o.unit)}"
    )


def too_little(o: Obstacle) -> str:
    """Proved: by sums over queues, by what single nodes could have, or by how many of its pods find room."""
    what, _, kept = o.detail.partition("; ")
    words = f" ({kept})" if kept else ""
    if what == ROOM and o.need == 1:
        return f"no node would have room for it {IF_ALL_WENT}{words}"
    if what == ROOM:
        return f"its {amount(o.need, o.unit)} must start together, and there is room for {o.have} {IF_ALL_WENT}{words}"
    need, have = amount(o.need, o.unit), amount(o.have, o.unit)
    if what.startswith(ON_ONE_NODE):
        of = what.removeprefix(ON_ONE_NODE)
        return f"it needs {need}{of} free on one node, and no node would have more than {have} {IF_ALL_WENT}{words}"
    details = f" ({o.detail})" if o.detail else ""
    return f"it needs {need}{_of(o)}, and all that is free or may be taken from other queues is {have}{details}"


def _of(o: Obstacle) -> str:
    """`milli-GPU of MI250X: ...` is about ` of MI250X`; of an extended resource the name stands alone."""
    what = o.detail.partition(":")[0]
    if not o.unit:
        return f" of {what}"
    scope = what.partition(" ")[2]
    return (" of memory" if o.unit == "mib" else "") + (f" {scope}" if scope and ":" in o.detail else "")


def no_way(o: Obstacle) -> str:
    """Undecided. Of work that needs nothing that is counted the other obstacles name what is short."""
    if not o.need:
        return f"work of other queues may be stopped for it, and no way was found to make room by that ({o.detail})"
    of = " of memory" if o.unit == "mib" else ""
    return (
        f"{amount(o.have, o.unit)}{of} are free or may be taken from other queues, and no way was found to make room "
        f"for {amount(o.need, o.unit)} of them together ({o.detail})"
    )


def held_off(o: Obstacle) -> str:
    """The time that is left is there for whoever asks."""
    left = f" (in {gap_words(o.need)})" if o.need else ""
    return (
        f"{o.subject.removeprefix('default/')} could take room back from others, and had to go for others itself: "
        f"it stops nobody before {o.detail}{left}, by the policy's holdOff"
    )


def patient(o: Obstacle) -> str:
    """The same."""
    left = f" (in {gap_words(o.need)})" if o.need else ""
    return (
        f"{o.subject.removeprefix('default/')} could take room from others, and asked to wait first: "
        f"it stops nobody before {o.detail}{left}, by its preemption delay"
    )
