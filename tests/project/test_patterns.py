"""No text of a tenant may keep a process busy: every pattern in the source matches in time that its length bounds.

A pattern is ambiguous when one text can be divided among its repetitions in several ways: a text that nearly matches
then makes Python try all of them, and each further character doubles the time.
"""

import ast
import importlib
import re
import signal
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from kaiwo.api.application import API_ROUTES

parser: Any = importlib.import_module("re._parser")
constants: Any = importlib.import_module("re._constants")

SOURCE = Path("src/kaiwo")
FUNCTIONS = {"compile", "match", "search", "fullmatch", "sub", "split", "findall", "finditer"}
ALPHABET = frozenset(range(128)) | {0xE9}  # every ASCII character, and one beyond
COPIES = 6  # a bounded repetition is written out this often; beyond that it counts as endless
LENGTH, MOST_S = 1_000, 0.25  # the longest name that Kubernetes accepts has 253 characters


class Pattern(NamedTuple):
    where: str
    text: str | bytes
    flags: int


def patterns() -> Iterator[Pattern]:
    """Every pattern in the source that can be read there, and those of the API's parameters."""
    for path in sorted(SOURCE.rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        for call in calls:
            function = call.func
            if not (isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "re"):
                continue
            if function.attr in FUNCTIONS and (found := _read(path, call)) is not None:
                yield Pattern(f"{path.relative_to(SOURCE)}:{call.lineno}", *found)
    for route in API_ROUTES:
        for param in route.params:
            if param.pattern:
                yield Pattern(f"{route.path}?{param.name}", param.pattern, 0)


def _read(path: Path, call: ast.Call) -> tuple[str | bytes, int] | None:
    module = importlib.import_module(".".join(("kaiwo", *path.relative_to(SOURCE).with_suffix("").parts)))
    try:
        text = eval(compile(ast.Expression(call.args[0]), str(path), "eval"), vars(module))
    except (NameError, AttributeError):
        return None  # a variable of a function: the test of named exceptions counts these
    return text.pattern if isinstance(text, re.Pattern) else text, 0


class Positions:
    """The characters of a pattern, each with those that may follow it: Glushkov's automaton."""

    def __init__(self, text: str | bytes) -> None:
        self.sets: list[frozenset[int]] = []
        self.follow: dict[int, set[int]] = {}
        self.is_ambiguous = False
        self.first, self.last, _ = self._sequence(list(parser.parse(text)))

    def _sequence(self, items: list[Any]) -> tuple[set[int], set[int], bool]:
        first, last, is_empty = set[int](), set[int](), True
        for item in items:
            head, tail, may_skip = self._item(item)
            self._link(last, head)
            first |= head if is_empty else set()
            last = last | tail if may_skip else tail
            is_empty = is_empty and may_skip
        return first, last, is_empty

    def _item(self, item: Any) -> tuple[set[int], set[int], bool]:
        kind, value = item
        name = str(kind)
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return self._character(_characters(name, value))
        if name == "SUBPATTERN":
            return self._sequence(list(value[-1]))
        if name == "BRANCH":
            ways = [self._sequence(list(way)) for way in value[1]]
            return set().union(*(w[0] for w in ways)), set().union(*(w[1] for w in ways)), any(w[2] for w in ways)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            return self._repeat(*value)
        if name in ("AT", "ASSERT", "ASSERT_NOT"):
            return set(), set(), True
        raise AssertionError(f"this test does not know {name} yet")

    def _character(self, characters: frozenset[int]) -> tuple[set[int], set[int], bool]:
        at = len(self.sets)
        self.sets.append(characters)
        self.follow[at] = set()
        return {at}, {at}, False

    def _repeat(self, least: int, most: int, body: Any) -> tuple[set[int], set[int], bool]:
        first, last, is_empty = set[int](), set[int](), True
        endless = most > COPIES
        for number in range(max(min(least, COPIES), 1) if endless else most):
            head, tail, may_skip = self._sequence(list(body))
            may_skip = may_skip or number >= least
            self._link(last, head)
            first |= head if is_empty else set()
            last = last | tail if may_skip else tail
            is_empty = is_empty and may_skip
        if endless:
            self.is_ambiguous |= any(q in self.follow[p] for p, q in product(tail, head))
            self._link(tail, head)
        return first, last, is_empty

    def _link(self, last: set[int], first: set[int]) -> None:
        for at in last:
            self.follow[at] |= first

    def can_explode(self) -> bool:
        """One text leads from some character back to it in two ways."""
        if self.is_ambiguous:
            return True
        pairs = product(self.follow, self.follow)
        edges = {
            (p, q): [pair for pair in product(self.follow[p], self.follow[q]) if self._share(*pair)] for p, q in pairs
        }
        return any(
            _reaches(edges, (p, p), off) and _reaches(edges, off, (p, p))
            for p in self.follow
            for off in edges[(p, p)]
            if off[0] != off[1]
        )

    def _share(self, p: int, q: int) -> bool:
        return not self.sets[p].isdisjoint(self.sets[q])

    def hostile_texts(self) -> Iterator[str]:
        """For every repetition a text that goes around it many times, and then does not match."""
        for at in self.follow:
            before, around = self._path(self.first, at), self._path(self.follow[at], at)
            if before is not None and around:
                yield (before + around * LENGTH)[:LENGTH] + "\0"

    def _path(self, starts: set[int], goal: int) -> str | None:
        """The shortest text that goes from one of these positions to the goal, both included."""
        paths = {start: chr(_sample(self.sets[start])) for start in sorted(starts) if self.sets[start]}
        waiting = list(paths)
        while waiting:
            at = waiting.pop(0)
            if at == goal:
                return paths[at]
            for after in sorted(self.follow[at] - set(paths)):
                if self.sets[after]:
                    paths[after] = paths[at] + chr(_sample(self.sets[after]))
                    waiting.append(after)
        return None


def _sample(characters: frozenset[int]) -> int:
    """Preferably a digit: most ambiguities are about what is a number and what is a name."""
    return min(characters, key=lambda each: (not chr(each).isdigit(), not chr(each).isalpha(), each))


def _reaches(
    edges: dict[tuple[int, int], list[tuple[int, int]]], start: tuple[int, int], goal: tuple[int, int]
) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        for each in edges[waiting.pop()]:
            if each == goal:
                return True
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return False


def _characters(name: str, value: Any) -> frozenset[int]:
    if name == "LITERAL":
        return frozenset({value}) & ALPHABET
    if name == "NOT_LITERAL":
        return ALPHABET - {value}
    if name == "ANY":
        return ALPHABET - {10}
    chosen = set[int]()
    is_negated = False
    for kind, what in value:
        if str(kind) == "NEGATE":
            is_negated = True
        elif str(kind) == "LITERAL":
            chosen.add(what)
        elif str(kind) == "RANGE":
            chosen |= set(range(what[0], what[1] + 1))
        else:
            category = {"CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s", "CATEGORY_WORD": r"\w"}[str(what)]
            chosen |= {each for each in ALPHABET if re.fullmatch(category, chr(each))}
    return ALPHABET - chosen if is_negated else ALPHABET & chosen


@pytest.mark.parametrize(
    "text", [r"(?:[-_.](?:[0-9]+|[b2]{5}))+$", r"(a*)*b", r"(a|ab|b)*c", r"(\w+\d+)+x", r"(.*,)*x"]
)
def test_a_pattern_that_can_explode_is_recognized(text: str) -> None:
    assert Positions(text).can_explode()


@pytest.mark.parametrize("text", [r"a*b", r"(?:\.[a-z]+)*x", r"[a-z](?:[-a-z]*[a-z])?", r"(\d+[smhdw])+", r"\s+|\d+"])
def test_a_harmless_pattern_is_not(text: str) -> None:
    assert not Positions(text).can_explode()


ALL = list(patterns())


def test_the_patterns_are_found() -> None:
    assert len(ALL) > 60
    assert any("recent_runs" in each.where for each in ALL)


@pytest.mark.parametrize("pattern", ALL, ids=lambda pattern: pattern.where)
def test_no_pattern_divides_one_text_in_many_ways(pattern: Pattern) -> None:
    assert not Positions(pattern.text).can_explode(), f"{pattern.where}: {pattern.text!r} is ambiguous"


@pytest.mark.parametrize("pattern", ALL, ids=lambda pattern: pattern.where)
def test_hostile_text_is_refused_quickly(pattern: Pattern) -> None:
    compiled = re.compile(pattern.text, pattern.flags)
    for text in Positions(pattern.text).hostile_texts():
        hostile = text if isinstance(pattern.text, str) else text.encode("latin-1", "replace")
        signal.signal(signal.SIGVTALRM, _too_slow)
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
        try:
            compiled.search(hostile)  # type: ignore[arg-type]  # text or bytes, as the pattern
            compiled.fullmatch(hostile)  # type: ignore[arg-type]
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _too_slow(signum: int, frame: FrameType | None) -> None:
    raise AssertionError(f"matching {LENGTH} characters takes longer than {MOST_S} s")
