"""The rule of division once more, as slow and plain as can be: fractions, one queue at a time.

The laws compare the shipped code with this. `ideal` is the share before rounding.
"""

from dataclasses import dataclass
from fractions import Fraction

ENDLESS = 1 << 62


@dataclass
class Claimant:
    """One queue in one pool."""

    quota: int
    limit: int
    request: int
    weight: int
    rank: int
    age: int
    share: int = 0
    ideal: Fraction = Fraction(0)

    @property
    def want(self) -> int:
        return max(0, min(self.request, self.limit) - self.share) if self.weight > 0 else 0


def divide(total: int, claimants: list[Claimant], unit: int, settles: bool) -> int:
    """Give every claimant its share; what is left comes back."""
    for each in claimants:
        each.share = min(total if each.quota >= ENDLESS else each.quota, each.request, each.limit)
        each.ideal = Fraction(each.share)
    left = max(0, total - sum(each.share for each in claimants))
    fractions: list[tuple[Claimant, Fraction]] = []
    ranks = sorted({each.rank for each in claimants})
    for rank in ranks:
        left, found = serve(left, [each for each in claimants if each.rank == rank], unit)
        if settles:
            left = give_remainder(left, found, unit)
        else:
            fractions += found
    for rank in ranks:
        left = give_remainder(left, [pair for pair in fractions if pair[0].rank == rank], unit)
    return left


def serve(left: int, rank: list[Claimant], unit: int) -> tuple[int, list[tuple[Claimant, Fraction]]]:
    """Fill by weight until it is used up or nobody wants more."""
    active = [each for each in rank if each.want > 0]
    while active:
        weights = sum(each.weight for each in active)
        content = [each for each in active if each.want <= Fraction(left * each.weight, weights)]
        if not content:
            parts = [(each, Fraction(left * each.weight, weights)) for each in active]
            for each, part in parts:
                each.share += int(part // unit) * unit
                each.ideal += part
            left -= sum(int(part // unit) * unit for _, part in parts)
            return left, [(each, part % unit) for each, part in parts if part % unit]
        for each in content:
            left -= each.want
            each.ideal += each.want
            each.share += each.want
        active = [each for each in active if each not in content]
    return left, []


def give_remainder(left: int, fractions: list[tuple[Claimant, Fraction]], unit: int) -> int:
    for each, _ in sorted(fractions, key=lambda pair: (-pair[1], pair[0].age)):
        gift = min(unit, left, each.want)
        each.share += gift
        left -= gift
    return left
