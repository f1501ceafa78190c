"""Measured speed: what programs report about their progress, and what follows from it for the nodes that they run on.

A speed is measured over expected, in thousandths: 500 means that a step took twice as long as expected. A report of one
pod says something about its node. A report of a gang counts for all its nodes, but blames none of them: a gang is as
slow as its slowest member.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

DAY_S = 86_400
FULL_SPEED, TOP_SPEED = 1000, 4000
HALF_LIFE_S = DAY_S  # after this time, a measured speed counts half
KEPT_PARTS = 4  # of which a new report replaces one
FIRST_OUT_S, LONGEST_OUT_S = 600, 6 * 3_600  # a slow node takes no new work for this long, doubled each time of a day
FEWEST_OTHERS = 2  # nodes that one is compared with


class ProgressReport(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """The last report of a workload, or of one of its pods."""

    workload: str
    at_s: int  # when it arrived, by the cluster's clock
    pod: str = ""  # empty: all of them together
    step_us: int = 0  # how long a step took; 0: not reported
    expected_us: int = 0  # how long it should take; 0: as long as its fastest report
    bandwidth_mb_s: int = 0  # what each GPU sent in collectives (bus bandwidth); 0: not reported
    steps: int = 0  # steps done so far; 0: not reported


class NodeSpeed(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What was measured on one node."""

    permille: int  # measured over expected; 0: nothing is known any more
    at_s: int  # the last report
    slow_since_s: int = 0  # it has been far below the others since then; 0: it is not
    out_until_s: int = 0  # it was so for too long: it takes no new work before then
    is_left: bool = False  # and running work that measured this leaves it
    times: int = 0  # how often that happened within a day
    last_s: int = 0  # when it happened last


class SlowRule(msgspec.Struct, gc=False, frozen=True):
    """When a node counts as slow, as the policy says."""

    below_percent: int  # of the usual speed
    for_s: int
    leaves: bool  # running work leaves it, too


def permille_of(expected: int, measured: int) -> int:
    """Both are times."""
    return max(1, min(TOP_SPEED, FULL_SPEED * expected // max(1, measured)))


def blended(before: NodeSpeed | None, permille: int, at_s: int) -> NodeSpeed:
    """The speed of a node after one more report."""
    if before is None:
        return NodeSpeed(permille, at_s)
    if before.permille and at_s - before.at_s < HALF_LIFE_S:
        permille = ((KEPT_PARTS - 1) * before.permille + permille) // KEPT_PARTS
    return replace(before, permille=permille, at_s=max(at_s, before.at_s))


def usual_permille(speeds: Iterable[NodeSpeed]) -> int:
    """The median of what is known; 0: nothing is."""
    known = sorted(speed.permille for speed in speeds if speed.permille)
    return known[len(known) // 2] if known else 0


def judged(speed: NodeSpeed, others: Iterable[NodeSpeed], rule: SlowRule, may_go_out: bool) -> NodeSpeed:
    """Whether it is slow beside the others, and whether it has been so for too long."""
    known = [each for each in others if each.permille]
    usual = usual_permille(known)
    if len(known) < FEWEST_OTHERS or speed.permille * 100 >= rule.below_percent * usual:
        return replace(speed, slow_since_s=0)
    since_s = speed.slow_since_s or max(1, speed.at_s)
    if speed.out_until_s or speed.at_s - since_s < rule.for_s or not may_go_out:
        return replace(speed, slow_since_s=since_s)
    times = speed.times + 1 if speed.at_s - speed.last_s < DAY_S else 1
    out_s = min(FIRST_OUT_S << min(times - 1, 16), LONGEST_OUT_S)
    return replace(
        speed, slow_since_s=since_s, out_until_s=speed.at_s + out_s, is_left=rule.leaves, times=times, last_s=speed.at_s
    )


def given_another_chance(speed: NodeSpeed) -> NodeSpeed:
    """It takes work again, and nothing is known about it; how often it was slow is remembered."""
    return NodeSpeed(0, speed.at_s, times=speed.times, last_s=speed.last_s)
