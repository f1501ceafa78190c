"""The arithmetic of a fair share in sentences: the same in the command line and on the page.

In:    the terms of one resource.   Out: one line a term, which a person can recompute.
All numbers of one resource have one unit, and are exact.
"""

from collections.abc import Callable

from kaiwo.model.queue import ReclaimStrategy
from kaiwo.queues.terms import ShareTerms
from kaiwo.runtime.standings import QueueStanding

Writer = Callable[[int], str]
ROUNDED = {"gpu": "rounded down to whole GPUs", "cpu": "rounded down to 0.001 CPU", "memory": "rounded down to 1 MiB"}


def arithmetic(terms: ShareTerms, used: int, parent: str) -> list[str]:
    """What is divided, what the queue wants, what it deserves, and its share."""
    write = _writer(terms, used)
    of_whom = f"the fair share of {parent}" if parent else "all that the cluster has"
    return [
        f"divided {write(terms.total)}: {of_whom}",
        f"wants {write(terms.wants)} = {write(used)} used + {write(terms.wants - used)} waiting",
        f"deserved {write(terms.deserved)} = the least of {_bounds(terms, write)}",
        f"share {write(terms.share)} = {_sum(terms, write)}",
    ]


def reclaim_words(each: QueueStanding) -> str:
    """How far a queue may reach to take capacity back from others."""
    if not each.is_leaf:
        return "only the queues below it take capacity back, each by its own strategy"
    terms = each.terms[0]
    write = _writer(terms, each.used[0])
    match each.reclaim_strategy:
        case ReclaimStrategy.NONE:
            return "none: it never takes capacity back from others"
        case ReclaimStrategy.CONSERVATIVE:
            bound, what = terms.quota, "quota"
        case _:
            bound, what = terms.share, "fair share"
    strategy, used = each.reclaim_strategy.value, each.used[0]
    if bound is None:
        return f"{strategy}: it may take capacity back without bound, for its {what} is unlimited"
    if used >= bound:
        return f"{strategy}: it takes nothing back, for it uses {write(used)} GPUs and its {what} is {write(bound)}"
    return f"{strategy}: it may take back {write(bound - used)} GPUs = {what} {write(bound)} - {write(used)} used"


def _sum(terms: ShareTerms, write: Writer) -> str:
    part = f"{write(terms.whole)} ({_part(terms, write)})"
    return f"deserved {write(terms.deserved)} + {part} + {write(terms.remainder)} remainder"


def _bounds(terms: ShareTerms, write: Writer) -> str:
    quota = f"quota unlimited ({write(terms.total)})" if terms.quota is None else f"quota {write(terms.quota)}"
    limit = "" if terms.limit is None else f", limit {write(terms.limit)}"
    return f"{quota}, wants {write(terms.wants)}{limit}"


def _part(terms: ShareTerms, write: Writer) -> str:
    """Why it gets just that much of the rest."""
    if terms.weights:
        rounded = ROUNDED.get(terms.resource, ROUNDED["gpu"])
        bent = "" if terms.past_ppm is None else f" (it used {terms.past_ppm / 10_000:.1f} % of the cluster lately)"
        return f"weight {terms.weight} of {terms.weights}{bent}, of {write(terms.offered)} left, {rounded}"
    if terms.whole:
        is_limited = terms.limit is not None and terms.limit < terms.wants
        return "all that its limit lets it have" if is_limited else "all it wants"
    if terms.deserved >= terms.wants:
        return "it wants no more"
    if terms.limit is not None and terms.deserved >= terms.limit:
        return "its limit"
    if not terms.weight:
        return "weight 0: never more than it deserves"
    return "nothing is left for it"


def _writer(terms: ShareTerms, used: int) -> Writer:
    if terms.resource != "memory":
        return _thousandths
    amounts = (used, terms.total, terms.wants, terms.deserved, terms.whole, terms.remainder, terms.offered)
    bounds = (terms.quota or 0, terms.limit or 0)
    return _gib if all(amount % 1024 == 0 for amount in (*amounts, *bounds)) else _mib


def _thousandths(amount: int) -> str:
    sign, (whole, rest) = ("-" if amount < 0 else ""), divmod(abs(amount), 1000)
    return f"{sign}{whole}.{rest:03d}".rstrip("0") if rest else f"{sign}{whole}"


def _gib(amount: int) -> str:
    return f"{amount // 1024}Gi" if amount else "0"


def _mib(amount: int) -> str:
    return f"{amount}Mi" if amount else "0"
