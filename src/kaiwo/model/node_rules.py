"""Requirements on a node's labels."""

import re
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

LARGEST = (1 << 63) - 1
VENDOR_LABEL = "kaiwo.ai/gpu-vendor."  # put on nodes in our picture only: a GPU of this vendor is there
_is_number = re.compile(r"[+-]?[0-9]+", re.ASCII).fullmatch


class NodeRule(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One requirement on a node's labels."""

    key: str
    operator: str = "In"  # In | NotIn | Exists | DoesNotExist | Gt | Lt
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """A node with these labels obeys it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False

    def _compares(self, value: str | None) -> bool:
        have, bound = _number(value), _number(self.values[0] if self.values else None)
        if have is None or bound is None:
            return False
        return have > bound if self.operator == "Gt" else have < bound


Rules: TypeAlias = tuple[NodeRule, ...]  # all of them must hold
Choice: TypeAlias = tuple[Rules, ...]  # one of these must hold; of no alternatives none does


class Preference(msgspec.Struct, gc=False, frozen=True):
    """Nodes that are better than others, if all of these hold."""

    weight: int  # 1..100
    rules: Rules


def obeys(labels: Mapping[str, str], rules: Rules, choices: tuple[Choice, ...]) -> bool:
    """All rules hold, and of each choice one alternative."""
    return all(rule.holds(labels) for rule in rules) and all(
        any(all(rule.holds(labels) for rule in each) for each in choice) for choice in choices
    )


def _number(text: str | None) -> int | None:
    """Whole numbers of 64 bits, written plainly: `1_000` and ` 5` are none."""
    if text is None or not _is_number(text):
        return None
    number = int(text)
    return number if -LARGEST - 1 <= number <= LARGEST else None
