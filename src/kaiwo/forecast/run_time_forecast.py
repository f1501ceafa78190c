"""Forecast how long a workload will run, from the runs that have ended: by user, name, queue, image and size.

In:    one ended run at a time.   Out: a range that four of five runs fall into, their mean, and what it rests on.
Never: guesses. Without enough runs of the same queue, user or image the run time is unknown.

Every run is counted in several groups, from all runs of the cluster to those of one script; some groups forget old runs
sooner than others. A small group leans on the next larger one. Which groups to believe is learned, too: after each run
a group gains weight when it had expected that run time.

A run is as old as its start, not its end: of the runs that started together the longest end last, and what ended last
would say that all of them are long. Decision 0054 has the measurements.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

import msgspec
import numpy as np

from kaiwo.forecast.duration_buckets import BUCKETS, PER_DOUBLING, Counts, bucket_of, mean_s, quantile_s

FEWEST_RUNS = 3  # fewer are not enough to predict the next one
LOW_PPM, HIGH_PPM = 100_000, 900_000  # four of five runs fall between
STEP_PPM, MISS_STEPS = 500, 12  # by which a range is corrected after each run
HOUR_S, DAY_S = 3600, 86_400
RUN = 256  # one run, in the units of a group's counts
WHOLE = 1 << 20  # certainty, in the units of probabilities and weights
PRIOR_RUNS = 2  # the next larger group counts as much as two runs
SHARED_PART = 64  # one part in 64 of the weight is divided evenly after each run, so that no group is lost for good
MAX_GROUPS = 20_000  # those that ended last; about 33 MB
MAX_TRUSTS = 2_000  # queues and sizes


class RunKey(NamedTuple):
    """What is known about a workload before it runs. Empty: unknown."""

    user: str
    name: str  # without its number
    queue: str
    image: str
    size: int  # thousandths of a GPU in total


class RunTimeRange(msgspec.Struct, frozen=True):
    """A forecast: four of five such runs take from `low_s` to `high_s`."""

    low_s: int
    middle_s: int  # half of them take longer
    high_s: int
    mean_s: int
    runs: int  # of the most specific group with enough of them
    basis: str  # what those runs have in common: "user, name, size"


class _Level(NamedTuple):
    fields: tuple[str, ...]
    half_life_s: int  # after this time a run counts half
    leans_on: int  # the level of the next larger group


# First those with a long memory, from the general to the specific. Then those with a short one: on Philly, the last
# runs of a queue and size say more about the next one than all of its runs together.
_LEVELS = (
    _Level((), 90 * DAY_S, 0),
    _Level(("size",), 90 * DAY_S, 0),
    _Level(("queue", "size"), 90 * DAY_S, 1),
    _Level(("queue", "image", "size"), 30 * DAY_S, 2),
    _Level(("user", "queue", "size"), 30 * DAY_S, 3),
    _Level(("user", "name", "size"), 30 * DAY_S, 4),
    _Level(("user", "name", "queue", "image", "size"), 7 * DAY_S, 5),
    _Level(("queue", "size"), 2 * DAY_S, 2),
    _Level(("user", "queue", "size"), 2 * DAY_S, 7),
    _Level(("queue", "size"), HOUR_S, 7),
    _Level(("user", "queue", "size"), HOUR_S, 9),
)
# The mean rests on all levels with a long memory. What is rare decides about a mean, and an hour sees nothing rare.
_LONG_MEMORY = 6
_AT = tuple(tuple(RunKey._fields.index(field) for field in level.fields) for level in _LEVELS)
# A forecast must rest on one of these: on a group that has more in common than its size.
_SPECIFIC = range(2, _LONG_MEMORY + 1)


class _Group:
    """Its counts are as of `newest_s`, when the newest of its runs started."""

    __slots__ = ("counts", "newest_s", "runs")

    def __init__(self, counts: Counts, runs: int, newest_s: int) -> None:
        self.counts, self.runs, self.newest_s = counts, runs, newest_s

    def add(self, bucket: int, started_s: int, half_life_s: int) -> None:
        age_s = self.newest_s - started_s
        if age_s < 0:
            self.counts = self.counts * remaining(-age_s, half_life_s) >> 20
            self.newest_s = started_s
        self.counts[bucket] += RUN * remaining(max(0, age_s), half_life_s) >> 20
        self.runs += 1


class _Trust:
    """How much each level is believed about one queue and size, and where its ranges begin and end."""

    __slots__ = ("high_ppm", "low_ppm", "weights")

    def __init__(self, weights: Counts | None = None, low_ppm: int = LOW_PPM, high_ppm: int = HIGH_PPM) -> None:
        self.weights = np.full(len(_LEVELS), WHOLE // len(_LEVELS), np.int64) if weights is None else weights
        self.low_ppm, self.high_ppm = low_ppm, high_ppm

    def mix(self, distributions: Counts) -> Counts:
        # In parts of WHOLE again: times durations it must fit in 64 bits.
        mixed: Counts = (self.weights[:, None] * distributions).sum(axis=0) >> 20
        return mixed

    def update_weights(self, expected: Counts) -> None:
        """`expected`: how likely each level had called what happened."""
        # A surprise counts as one in 4,096, or a single one would decide for good.
        fulfilled = self.weights * np.maximum(expected, WHOLE >> 12) >> 10
        weights = fulfilled * WHOLE // max(1, int(fulfilled.sum()))
        weights += (WHOLE // len(_LEVELS) - weights) // SHARED_PART
        self.weights = np.maximum(weights, 1)

    def correct_range(self, mixed: Counts, run_s: int) -> None:
        """A miss widens the range by twelve steps, a hit narrows it by one, so one run in thirteen misses on each side.

        At the end of a run more is known than at its submission, when the range was asked for: there it is one in ten.
        """
        is_below, is_above = run_s < quantile_s(mixed, self.low_ppm), run_s > quantile_s(mixed, self.high_ppm)
        low_ppm = self.low_ppm + (-MISS_STEPS * STEP_PPM if is_below else STEP_PPM)
        high_ppm = self.high_ppm + (MISS_STEPS * STEP_PPM if is_above else -STEP_PPM)
        self.low_ppm, self.high_ppm = min(max(low_ppm, 1_000), 400_000), max(min(high_ppm, 999_000), 600_000)


class SavedTrust(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    size: int
    low_ppm: int
    high_ppm: int
    weights: tuple[int, ...]


class SavedGroup(msgspec.Struct, frozen=True, array_like=True):
    key: tuple[str | int, ...]  # the number of its level, then the values of its fields
    runs: int
    newest_s: int
    counts: dict[int, int]  # by bucket; empty buckets are left out


class SavedForecast(msgspec.Struct, frozen=True):
    """The whole state, the groups that ended first come first."""

    groups: tuple[SavedGroup, ...] = ()
    trust: tuple[SavedTrust, ...] = ()


class RunTimeForecast:
    def __init__(self, saved: SavedForecast | None = None) -> None:
        self._groups: OrderedDict[Hashable, _Group] = OrderedDict()
        self._trust: OrderedDict[tuple[str, int], _Trust] = OrderedDict()
        for each in saved.groups if saved is not None else ():
            counts = np.zeros(BUCKETS, np.int64)
            for bucket, count in each.counts.items():
                counts[bucket] = count
            self._groups[tuple(each.key)] = _Group(counts, each.runs, each.newest_s)
        for one in saved.trust if saved is not None else ():
            if len(one.weights) == len(_LEVELS):  # another version had others: what is trusted is learned anew
                weights = np.array(one.weights, np.int64)
                self._trust[one.queue, one.size] = _Trust(weights, one.low_ppm, one.high_ppm)

    def learn(self, key: RunKey, run_s: int, started_s: int) -> None:
        """A run that started then has ended after this long."""
        bucket = bucket_of(run_s)
        self._update_trust(key, run_s, started_s + run_s)
        for level, group_key in zip(_LEVELS, _group_keys(key), strict=True):
            if group_key is None:
                continue
            group = self._groups.pop(group_key, None) or _Group(np.zeros(BUCKETS, np.int64), 0, started_s)
            group.add(bucket, started_s, level.half_life_s)
            self._groups[group_key] = group
        while len(self._groups) > MAX_GROUPS:
            self._groups.popitem(last=False)

    def expect(self, key: RunKey, now_s: int) -> RunTimeRange | None:
        """How long a run with this key would take that started now. None: unknown."""
        found = [self._groups.get(group_key) if group_key else None for group_key in _group_keys(key)]
        known = [at for at in _SPECIFIC if (group := found[at]) is not None and group.runs >= FEWEST_RUNS]
        if not known:
            return None
        distributions = self._distributions(key, now_s)
        trust = self._trust.get((key.queue, key.size))
        mixed, low_ppm, high_ppm = distributions[_LONG_MEMORY], LOW_PPM, HIGH_PPM
        if trust is not None:
            mixed, low_ppm, high_ppm = trust.mix(distributions), trust.low_ppm, trust.high_ppm
        basis = known[-1]
        group = found[basis]
        return RunTimeRange(
            low_s=quantile_s(mixed, low_ppm),
            middle_s=quantile_s(mixed, 500_000),
            high_s=quantile_s(mixed, high_ppm),
            mean_s=mean_s(distributions[_LONG_MEMORY]),
            runs=group.runs if group is not None else 0,
            basis=", ".join(_LEVELS[basis].fields),
        )

    def distribution(self, key: RunKey, now_s: int, unended: "UnendedRuns | None" = None) -> Counts | None:
        """How likely each bucket is, for a run with this key that starts now. None: unknown.

        `unended` has the runs of now: what is short has ended, so the ended runs alone say that all are short.
        """
        if not self._known_levels(key):
            return None
        distributions, trust = self._distributions(key, now_s, unended), self._trust.get((key.queue, key.size))
        return distributions[_LONG_MEMORY] if trust is None else trust.mix(distributions)

    def _known_levels(self, key: RunKey) -> list[int]:
        found = [self._groups.get(group_key) if group_key else None for group_key in _group_keys(key)]
        return [at for at in _SPECIFIC if (group := found[at]) is not None and group.runs >= FEWEST_RUNS]

    def rank_s(self, key: RunKey, now_s: int) -> int:
        """The mean by which to put shorter work first; with few runs of its own it is close to that of all runs.

        0: no run has ended. This is an order, not a forecast: it has a value where the run time is unknown, too.
        """
        return mean_s(self._distributions(key, now_s)[_LONG_MEMORY])

    def save(self) -> SavedForecast:
        groups = tuple(
            SavedGroup(
                key, group.runs, group.newest_s, {int(at): int(group.counts[at]) for at in np.flatnonzero(group.counts)}
            )
            for key, group in self._groups.items()
            if isinstance(key, tuple)
        )
        trust = tuple(
            SavedTrust(queue, size, one.low_ppm, one.high_ppm, tuple(one.weights.tolist()))
            for (queue, size), one in self._trust.items()
        )
        return SavedForecast(groups, trust)

    def _distributions(self, key: RunKey, now_s: int, unended: "UnendedRuns | None" = None) -> Counts:
        """What each level expects, in parts of WHOLE: its own runs, and the next larger group as some runs more."""
        rows = np.zeros((len(_LEVELS), BUCKETS), np.int64)
        for number, (level, group_key) in enumerate(zip(_LEVELS, _group_keys(key), strict=True)):
            above = rows[level.leans_on]
            group = self._groups.get(group_key) if group_key else None
            ages = unended.ages_of(group_key) if unended is not None and group_key is not None else None
            if ages is not None:
                ended = np.zeros(BUCKETS, np.int64)
                if group is not None:
                    ended = group.counts * remaining(max(0, now_s - group.newest_s), level.half_life_s) >> 20
                rows[number] = _product_limit(ended, ages, above, PRIOR_RUNS * RUN if number else 0)
            elif group is None:
                rows[number] = above
            elif not number:
                rows[number] = group.counts * WHOLE // int(group.counts.sum())
            else:
                # A group without recent runs says little, and less every hour.
                counts = group.counts * remaining(max(0, now_s - group.newest_s), level.half_life_s) >> 20
                rows[number] = (counts * WHOLE + PRIOR_RUNS * RUN * above) // (int(counts.sum()) + PRIOR_RUNS * RUN)
        return rows

    def _update_trust(self, key: RunKey, run_s: int, now_s: int) -> None:
        place = (key.queue, key.size)
        distributions = self._distributions(key, now_s)
        trust = self._trust.pop(place, None) or _Trust()
        if distributions[0].any():
            trust.correct_range(trust.mix(distributions), run_s)
        trust.update_weights(distributions[:, bucket_of(run_s)])
        self._trust[place] = trust
        if len(self._trust) > MAX_TRUSTS:
            self._trust.popitem(last=False)


class UnendedRuns:
    """The runs that have not ended, by group: how many have reached which age."""

    def __init__(self, now_s: int) -> None:
        self._now_s = now_s
        self._ages: dict[Hashable, Counts] = {}

    def add(self, key: RunKey, started_s: int) -> None:
        age_s = max(0, self._now_s - started_s)
        bucket = bucket_of(age_s)
        for level, group_key in zip(_LEVELS, _group_keys(key), strict=True):
            if group_key is not None and (weight := RUN * remaining(age_s, level.half_life_s) >> 20):
                ages = self._ages.get(group_key)
                if ages is None:
                    ages = self._ages[group_key] = np.zeros(BUCKETS, np.int64)
                ages[bucket] += weight

    def ages_of(self, group_key: Hashable) -> Counts | None:
        return self._ages.get(group_key)


def _product_limit(ended: Counts, ages: Counts, above: Counts, prior: int) -> Counts:
    """The distribution of Kaplan and Meier, with the next larger group as `prior` runs more, in parts of WHOLE.

    A run that has reached an age was at risk of ending in every bucket before that of its age. Without such runs the
    answer is the mean of the ended ones and the larger group, as elsewhere.
    """
    ends = ended * WHOLE + prior * above
    at_risk = np.cumsum((ends + ages * WHOLE)[::-1])[::-1] - ages * WHOLE
    result, surviving, last = np.zeros(BUCKETS, np.int64), WHOLE, 0
    for bucket in np.flatnonzero(ends).tolist():
        part = surviving * int(ends[bucket]) // int(at_risk[bucket])
        result[bucket], last = part, bucket
        surviving -= part
    longer = ages.copy()
    longer[:last] = 0
    if (total := int(longer.sum())) > 0:
        # They are longer than all that have ended: they take as long again.
        result[PER_DOUBLING:] += longer[:-PER_DOUBLING] * surviving // total
    return result


def remaining(age_s: int, half_life_s: int) -> int:
    """How much a run of this age counts, in parts of WHOLE."""
    halvings, rest_s = divmod(age_s, half_life_s)
    return _PARTS[rest_s * len(_PARTS) // half_life_s] >> min(halvings, 63)


# Between a whole and a half in 64 steps. Rounding makes the same integers of the floats on every machine.
_PARTS: tuple[int, ...] = tuple(round(WHOLE * 0.5 ** (step / 64)) for step in range(64))


def _group_keys(key: RunKey) -> list[tuple[str | int, ...] | None]:
    """The group of each level. None: the key lacks a field, so nothing is in common."""
    keys: list[tuple[str | int, ...] | None] = []
    for number, fields in enumerate(_AT):
        values = [key[at] for at in fields]
        keys.append(None if "" in values else (number, *values))
    return keys
