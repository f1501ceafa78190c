"""The rules of one Kaiwo, prepared for many evaluations: grouped by what they compare, with their patterns read.

In:    settings.   Out: a RuleSet.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from kaiwo.model.alerts.alert_rule import AlertRule, Inhibition
from kaiwo.telemetry.alerts.signals import SignalKey, key_of

Mask = npt.NDArray[np.bool_]


class RuleSet:
    """What it remembers is only what could be worked out again: masks and rows of the last list of names."""

    def __init__(self, rules: Iterable[AlertRule], inhibitions: Sequence[Inhibition] = ()) -> None:
        self.rules = tuple(rules)
        self.by_name = {rule.name: rule for rule in self.rules}
        self.inhibitions = tuple(inhibitions)
        self.by_signal: dict[SignalKey, list[AlertRule]] = {}
        for rule in self.rules:
            self.by_signal.setdefault(key_of(rule), []).append(rule)
        self._masks: dict[tuple[str, tuple[str, ...]], tuple[tuple[str, ...], Mask]] = {}
        self._rows: dict[str, tuple[tuple[str, ...], dict[str, int]]] = {}

    def mask(self, rule: AlertRule, names: tuple[str, ...]) -> Mask:
        """Which subjects the rule is about."""
        key = rule.of, rule.subjects
        kept = self._masks.get(key)
        if kept is None or (kept[0] is not names and kept[0] != names):
            found = np.array([matches(name, rule.subjects) for name in names], np.bool_)
            kept = self._masks[key] = names, found
        return kept[1]

    def rows(self, of: str, names: tuple[str, ...]) -> dict[str, int]:
        """The row of each subject."""
        kept = self._rows.get(of)
        if kept is None or (kept[0] is not names and kept[0] != names):
            kept = self._rows[of] = names, {name: row for row, name in enumerate(names)}
        return kept[1]


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns fits; no patterns fit everything."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
