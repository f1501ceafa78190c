"""Read the text format of Prometheus: the samples of some metrics, with their labels.

In:    text that anybody may have written.   Out: samples; lines that cannot be read are counted.
Never: raises, or takes more time than the text is long. Only metrics that were asked for cost more than a look.
"""

import math
import re
from collections.abc import Collection
from typing import NamedTuple

MAX_LINE, MAX_LABELS, MAX_SAMPLES = 4096, 64, 20_000
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]{0,199})\s*=\s*"((?:[^"\\\n]|\\.){0,1000})"\s*(,|$)')
_ESCAPED = re.compile(r"\\(.)")
_REAL = {"n": "\n", "\\": "\\", '"': '"'}


class MetricSample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class ReadMetrics(NamedTuple):
    samples: list[MetricSample]
    unreadable: int  # lines about these metrics


def read_metrics(text: str, names: Collection[str]) -> ReadMetrics:
    """Values that are not finite numbers are left out: an exporter writes NaN for what it does not know."""
    found: list[MetricSample] = []
    unreadable = 0
    for line in text.split("\n"):
        if line[:1] in ("", "#", " ", "\r"):
            continue
        name = _NAME.match(line)
        if name is None or name[0] not in names:
            continue
        sample = _sample(name[0], line[name.end() :]) if len(line) <= MAX_LINE else None
        if sample is None:
            unreadable += 1
        elif math.isfinite(sample.value):
            found.append(sample)
            if len(found) >= MAX_SAMPLES:
                break
    return ReadMetrics(found, unreadable)


def _sample(name: str, rest: str) -> MetricSample | None:
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        # The brace of the value's end: a label may contain one, too, so the last one counts.
        inside, brace, rest = rest[1:].rpartition("}")
        if not brace or not _add_labels(inside, labels):
            return None
    words = rest.split()
    if not 1 <= len(words) <= 2:  # a value, and perhaps a time
        return None
    try:
        return MetricSample(name, labels, float(words[0]))
    except ValueError:
        return None


def _add_labels(text: str, labels: dict[str, str]) -> bool:
    at = 0
    while at < len(text) and len(labels) < MAX_LABELS:
        match = _LABEL.match(text, at)
        if match is None:
            return not text[at:].strip()
        value = match[2]
        labels[match[1]] = _ESCAPED.sub(lambda sign: _REAL.get(sign[1], sign[0]), value) if "\\" in value else value
        at = match.end()
    return at >= len(text)
