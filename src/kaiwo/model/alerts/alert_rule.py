"""An alert rule: which measure of which subjects is compared with what, and how bad it is when it holds.

Names of rules are API once they are shipped: silences and receivers of alerts refer to them.
"""

import enum

import msgspec

DEFAULT_KEEP_S = 60
UNBOUNDED = 2**62  # a bound that nothing exceeds


class Severity(enum.StrEnum):
    """How bad it is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class RuleKind(enum.StrEnum):
    """How a measure becomes the number that is compared."""

    THRESHOLD = "threshold"  # the value itself, in its unit
    RATIO = "ratio"  # the value over another one, in thousandths
    ABSENCE = "absence"  # for how many seconds nobody has known a value that was known before
    RATE = "rate"  # what came in a time; with `over`, in thousandths of what came of that
    ANOMALY = "anomaly"  # how far it is from its own past, in thousandths of the usual deviation


class Side(enum.StrEnum):
    ABOVE = "above"
    BELOW = "below"


class RuleCondition(msgspec.Struct, frozen=True):
    """The rule holds only while this does, too."""

    measure: str
    side: Side
    bound: int
    of: str = ""  # a kind with a single subject; empty: the rule's own subject


class AlertRule(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    kind: RuleKind
    of: str  # a kind of subjects, as in the table of measures
    measure: str
    side: Side = Side.ABOVE
    bound: int = 0
    over: str = ""  # the measure to divide by
    at_least: int = 0  # a ratio or rate with a smaller divisor means nothing
    per_s: int = 0  # of a rate
    history_s: int = 0  # of an anomaly: how long the past counts
    subjects: tuple[str, ...] = ()  # patterns such as `node-1/*`; empty: all
    only_while: tuple[RuleCondition, ...] = ()
    for_s: int = 0  # it must hold for so long before the alert fires
    keep_s: int = DEFAULT_KEEP_S  # it must not hold for so long before the alert is resolved
    severity: Severity = Severity.WARNING
    labels: dict[str, str] = {}
    summary: str = ""  # `{subject}`, `{value}` and `{bound}` are filled in
    action: str = ""  # what to do, or where to look; `{subject}` and `{node}` are filled in
    is_built_in: bool = False


class Inhibition(msgspec.Struct, frozen=True):
    """While one of some rules fires, others are kept quiet: they are consequences."""

    while_fires: tuple[str, ...]  # patterns of rules
    quiets: tuple[str, ...]
    same: str = ""  # subject | node: only where both are about the same one; empty: everywhere
