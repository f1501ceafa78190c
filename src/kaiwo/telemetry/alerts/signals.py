"""Turn one sample of the cluster into the numbers that rules compare.

In:    the sample, its time, and what is remembered of earlier ones.   Out: one integer for each subject, MISSING where
       nobody knows; and the memory for the next sample.
Never: reads a clock, or changes the memory that it was given.
"""

from typing import NamedTuple
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt

from kaiwo.history.series.integer_codec import MISSING
from kaiwo.history.series.measures import COUNTS, SubjectKind
from kaiwo.history.series.series_writer import Frame, KindFrame, Vector
from kaiwo.model.alerts.alert_rule import AlertRule, RuleKind, Side

BUCKETS = 30  # of one window
STEP_S = 10  # between samples, as the time series have them
LONGEST_STEP_S = 120  # after a longer gap, the past counts as if so much time had passed
TURNS = 6
LEARNED = 90  # samples before an anomaly is said to be one
CLIP = 3  # deviations: an anomaly must not teach that it is usual
ABSENT_FOR_S = 86_400  # a value that nobody has known for longer is no longer missed
PERMILLE = 1000
Floats = npt.NDArray[np.float64]
_UNKNOWN_BELOW = 2**63 - 1


class SignalKey(NamedTuple):
    """Rules with the same key compare the same numbers with different bounds."""

    kind: RuleKind
    of: str
    measure: str
    over: str = ""
    at_least: int = 0
    per_s: int = 0
    history_s: int = 0
    side: Side = Side.ABOVE  # of an anomaly


def key_of(rule: AlertRule) -> SignalKey:
    side = rule.side if rule.kind is RuleKind.ANOMALY else Side.ABOVE
    return SignalKey(
        rule.kind, rule.of, rule.measure, rule.over, rule.at_least, rule.per_s, rule.history_s, side
    )  # fmt: skip


class Signal(NamedTuple):
    names: tuple[str, ...]
    values: Vector
    most: int

    @property
    def least(self) -> int:
        """Of the known ones."""
        known = self.values[self.values >= 0]
        return int(known.min()) if len(known) else _UNKNOWN_BELOW


class Window(msgspec.Struct, frozen=True):
    """What came, bucket by bucket; the newest is the last. Of a count the sums, else the last value."""

    names: tuple[str, ...]
    begins_s: tuple[int, ...]
    buckets: tuple[Vector, ...]
    total: Vector  # of all buckets


class Baseline(msgspec.Struct, frozen=True):
    """The usual value of each subject, and how far it usually is from it."""

    names: tuple[str, ...]
    mean: Floats
    variance: Floats
    scale: Floats  # one deviation; never so small that the least change is one
    samples: Vector
    at_s: int = 0  # when it last learned
    is_learned: bool = False  # of all subjects


class LastKnown(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    at_s: Vector  # MISSING: never


class SignalMemory(msgspec.Struct, frozen=True):
    """By kind of subject, measure, and the rule's time."""

    windows: dict[tuple[str, str, int], Window] = {}
    baselines: dict[tuple[str, str, int], Baseline] = {}
    known: dict[tuple[str, str], LastKnown] = {}
    at_s: int = 0  # of the last sample


class SignalReader:
    """The signals of one sample, each worked out once."""

    def __init__(self, sample: Frame, before: SignalMemory, now_s: int) -> None:
        self._sample, self._before, self._now_s = sample, before, now_s
        self._found: dict[SignalKey, Signal | None] = {}
        self._windows = dict(before.windows)
        self._baselines = dict(before.baselines)
        self._known = dict(before.known)
        self._fresh: set[tuple[object, ...]] = set()  # what has this sample already

    def read(self, key: SignalKey) -> Signal | None:
        """None: the sample has nothing of that kind."""
        if key not in self._found:
            frame = self._sample.get(SubjectKind(key.of))
            known = frame is not None and key.measure in frame.values and (not key.over or key.over in frame.values)
            self._found[key] = self._work_out(key, frame) if known and frame is not None else None
        return self._found[key]

    def memory(self) -> SignalMemory:
        return SignalMemory(self._windows, self._baselines, self._known, self._now_s)

    def _work_out(self, key: SignalKey, frame: KindFrame) -> Signal:
        names = tuple(frame.names)
        values = frame.values[key.measure]
        match key.kind:
            case RuleKind.THRESHOLD:
                found = values
            case RuleKind.RATIO:
                found = _divide(values, frame.values[key.over], max(1, key.at_least))
            case RuleKind.RATE:
                found = self._rate(key, names, key.measure, values)
                if key.over:
                    of_all = self._rate(key, names, key.over, frame.values[key.over])
                    found = _divide(found, of_all, max(1, key.at_least))
            case RuleKind.ANOMALY:
                found = self._deviation(key, names, values)
            case RuleKind.ABSENCE:
                found = self._absence(key, names, values)
        return Signal(names, found, int(found.max()) if len(found) else MISSING)

    # -- the past

    def _rate(self, key: SignalKey, names: tuple[str, ...], measure: str, values: Vector) -> Vector:
        is_count = (SubjectKind(key.of), measure) in COUNTS
        place = (key.of, measure, key.per_s)
        if ("window", *place) not in self._fresh:
            self._fresh.add(("window", *place))
            self._windows[place] = _added(self._windows.get(place), names, values, (self._now_s, key.per_s), is_count)
        window = self._windows[place]
        if is_count:
            return window.total
        oldest = window.buckets[0]
        grown = np.maximum(0, values - oldest)
        if min(values.min(initial=0), oldest.min(initial=0)) < 0:  # seldom: the mask costs more than the rest
            grown[(values < 0) | (oldest < 0)] = MISSING
        return grown

    def _deviation(self, key: SignalKey, names: tuple[str, ...], values: Vector) -> Vector:
        place = (key.of, key.measure, key.history_s)
        past = _aligned_baseline(self._before.baselines.get(place), names)
        distance = values - past.mean
        if ("baseline", *place) not in self._fresh:
            self._fresh.add(("baseline", *place))
            if self._learns(place, past):
                self._baselines[place] = _learned(past, values, distance, (self._now_s, key.history_s))
        far = distance if key.side is Side.ABOVE else -distance
        far *= PERMILLE
        far /= past.scale
        found: Vector = np.clip(far, 0, 2.0**40).astype(np.int64)
        if not past.is_learned or values.min(initial=0) < 0:
            found[(values < 0) | (past.samples < LEARNED)] = MISSING
        return found

    def _learns(self, place: tuple[str, str, int], past: Baseline) -> bool:
        """At first from every sample, then from one in a minute; not of all measures at the same one."""
        turn = crc32("/".join(map(str, place)).encode()) % TURNS
        return not past.is_learned or self._now_s // STEP_S % TURNS == turn or self._now_s - past.at_s > TURNS * STEP_S

    def _absence(self, key: SignalKey, names: tuple[str, ...], values: Vector) -> Vector:
        place = (key.of, key.measure)
        before = self._before.known.get(place)
        at_s = _aligned(before.names, before.at_s, names, MISSING) if before else np.full(len(names), MISSING, np.int64)
        at_s = np.where(values >= 0, self._now_s, at_s)
        self._known[place] = LastKnown(names, at_s)
        away_s = self._now_s - at_s
        return np.where((at_s < 0) | (away_s > ABSENT_FOR_S), MISSING, away_s)


def _learned(past: Baseline, values: Vector, distance: Floats, when: tuple[int, int]) -> Baseline:
    """The usual values after one more sample. `when`: now, and for how long the past counts."""
    now_s, history_s = when
    passed_s = min(max(now_s - past.at_s, 1), LONGEST_STEP_S) if past.at_s else STEP_S
    is_known, reach = values >= 0, CLIP * past.scale
    is_usual = (past.samples < LEARNED) | (np.abs(distance) <= reach)
    slow = min(1.0, passed_s / max(history_s, 1))  # what is unusual must last to become the usual
    weight = np.where(is_usual, np.maximum(slow, 1 / (past.samples + 1)), slow)
    step = np.where(past.samples < LEARNED, distance, np.clip(distance, -reach, reach))
    mean = np.where(is_known, past.mean + weight * step, past.mean)
    variance = np.where(is_known, (1 - weight) * (past.variance + weight * step**2), past.variance)
    samples = past.samples + is_known
    return Baseline(
        past.names, mean, variance, _scale(mean, variance), samples, now_s, bool((samples >= LEARNED).all())
    )  # fmt: skip


def _scale(mean: Floats, variance: Floats) -> Floats:
    found: Floats = np.maximum(np.sqrt(variance), np.maximum(1.0, np.abs(mean) / 100))
    return found


def _divide(values: Vector, over: Vector, at_least: int) -> Vector:
    found = values * PERMILLE / np.maximum(over, 1)  # not in integers: that takes three times as long
    found[(values < 0) | (over < at_least)] = MISSING
    return found.astype(np.int64)


def _added(before: Window | None, names: tuple[str, ...], values: Vector, when: tuple[int, int], sums: bool) -> Window:
    """The window with this sample, and without what is too old. `when`: now, and the length of the window."""
    now_s, per_s = when
    size_s = max(STEP_S, per_s // BUCKETS)
    begin_s = now_s - now_s % size_s
    values = np.maximum(values, 0) if sums else values
    if before is None or before.begins_s[-1] > now_s:  # the clock was set back
        return Window(names, (begin_s,), (values,), values)
    missing = 0 if sums else MISSING
    if before.names != names:
        buckets = tuple(_aligned(before.names, each, names, missing) for each in before.buckets)
        total = np.sum(buckets, axis=0) if sums else before.total
        before = Window(names, before.begins_s, buckets, total)
    begins, kept, total = list(before.begins_s), list(before.buckets), before.total
    if begins[-1] == begin_s:
        kept[-1] = kept[-1] + values if sums else values
    else:
        begins.append(begin_s)
        kept.append(values)
    total = total + values if sums else values
    while len(begins) > 1 and begins[0] <= now_s - per_s - (0 if sums else size_s):
        total = total - kept[0] if sums else total
        del begins[0], kept[0]
    return Window(names, tuple(begins), tuple(kept), total)


def _aligned(old: tuple[str, ...], values: np.ndarray, names: tuple[str, ...], missing: float) -> np.ndarray:
    """The values of these names; subjects come and go."""
    if old is names or old == names:
        return values
    place = {name: at for at, name in enumerate(old)}
    rows = np.array([place.get(name, -1) for name in names], np.intp)
    found = np.full(len(names), missing, values.dtype)
    known = rows >= 0
    found[known] = values[rows[known]]
    return found


def _aligned_baseline(before: Baseline | None, names: tuple[str, ...]) -> Baseline:
    if before is None:
        nothing = np.zeros(len(names))
        return Baseline(names, nothing, nothing, _scale(nothing, nothing), np.zeros(len(names), np.int64))
    if before.names is names or before.names == names:
        return before
    mean, variance = (_aligned(before.names, each, names, 0.0) for each in (before.mean, before.variance))
    samples = _aligned(before.names, before.samples, names, 0)
    is_learned = bool((samples >= LEARNED).all())
    return Baseline(names, mean, variance, _scale(mean, variance), samples, before.at_s, is_learned)
