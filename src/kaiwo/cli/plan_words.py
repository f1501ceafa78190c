"""A plan in lines, and how two plans differ.

In:    one plan, or what a cycle decided then and decides now.   Out: lines; two plans that differ never give none.
"""

from typing import Any

import msgspec

from kaiwo.cli.words import milli, short_name
from kaiwo.model.plan import Eviction, Plan, Start, Wait


def plan_lines(plan: Plan) -> list[str]:
    """One line for each thing the plan does."""
    return [_words(each) for each in (*plan.starts, *plan.evictions, *plan.waits)]


def difference_lines(then: Plan, now: Plan) -> tuple[list[str], list[str]]:
    """What only the first plan holds, and what only the second does: of every field, down to the last number."""
    only_then: list[str] = []
    only_now: list[str] = []
    for name in Plan.__struct_fields__:
        before, after = getattr(then, name), getattr(now, name)
        if before == after:
            continue
        gone, new = _apart(before, after) if isinstance(before, tuple) else ({}, {})
        if gone or new:
            only_then += _told(name, gone, new)
            only_now += _told(name, new, gone)
        else:  # a number or a word; or the same values in another order
            only_then.append(f"{name} {_plain(before)}")
            only_now.append(f"{name} {_plain(after)}")
    return only_then, only_now


def _apart(before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values that only one of the two has."""
    old, new = ({_plain(each): each for each in values} for values in (before, after))
    gone = {key: each for key, each in old.items() if key not in new}
    return gone, {key: each for key, each in new.items() if key not in old}


def _told(field: str, ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """In words, unless the other plan has the same words for something else: then all of it."""
    others = {_words(each) for each in theirs.values()}
    lines = []
    for key, each in ours.items():
        words = _words(each)
        lines.append(words if words and words not in others else f"{field} {key}")
    return lines


def _words(item: Any) -> str:
    match item:
        case Start():
            devices = ", ".join(d.gpu if d.milli == 1000 else f"{d.gpu} ({milli(d.milli)})" for d in item.devices)
            where = f"{item.node}: {devices}" if devices else item.node
            return f"start {short_name(item.workload)}/{item.pod} on {where}"
        case Eviction():
            cause = item.cause + (f" for {short_name(item.beneficiary)}" if item.beneficiary else "")
            return f"evict {short_name(item.workload)}/{item.pod} ({cause})"
        case Wait():
            return f"{item.queue}: {', '.join(each.reason for each in item.obstacles)}"
    return ""


def _plain(value: Any) -> str:
    return msgspec.json.encode(value).decode()
