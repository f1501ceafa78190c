"""Each promise of docs/security.md names a test that holds it, and that test exists."""

import re
from functools import cache
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "security.md"
HELD_BY = ("held by", "test")  # what the last column of a table of promises or attempts is called
ELSEWHERE = ("attempts", "the same")  # in a cell: the tests are in another table, or in the row above
LEAST = 40  # attempts of a tenant, as docs/security.md promises


class Row(NamedTuple):
    line: int
    section: str
    cells: tuple[str, ...]


def rows_of_promises(text: str) -> list[Row]:
    """The rows of every table whose last column names tests."""
    found, section, is_held = list[Row](), "", False
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not line.startswith("|"):
            is_held = False
            continue
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if lines[number : number + 1] and re.fullmatch(r"[|\-: ]+", lines[number]):
            is_held = cells[-1] in HELD_BY
        elif is_held and not re.fullmatch(r"[|\-: ]+", line):
            found.append(Row(number, section, cells))
    return found


def named_files(text: str) -> dict[str, list[str]]:
    """By section: the files with tests that it names."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        title, _, body = section.partition("\n")
        found[title] = list(dict.fromkeys(re.findall(r"`(tests/[\w/]+\.py)", body)))
    return found


@cache
def names_in(file: str) -> frozenset[str]:
    path = ROOT / file
    return frozenset(re.findall(r"^def (test_\w+)\(", path.read_text(), re.M)) if path.is_file() else frozenset()


def has_bench(name: str) -> bool:
    return (ROOT / "bench" / f"{name}.py").is_file()


def faults(text: str) -> list[str]:
    """What is wrong with the names of tests."""
    found, files = list[str](), named_files(text)
    for row in rows_of_promises(text):
        held = row.cells[-1]
        names = re.findall(r"`((?:tests/[\w/]+\.py|\.\.\.)?(?:::)?(?:test_\w+)?)(?:\[[^`]*\])?`", held)
        names = [name for name in names if name]
        benches = re.findall(r"`bench\.(\w+)`", held)  # what only real hardware shows
        found += [f"line {row.line}: there is no bench.{each}" for each in benches if not has_bench(each)]
        if not names and not benches and not any(word in held for word in ELSEWHERE):
            found.append(f"line {row.line}: no test holds it: {row.cells[0]}")
        for name in names:
            file, _, test = name.rpartition("::") if "::" in name or name.startswith("test_") else (name, "", "")
            where = [file] if file.startswith("tests/") else files[row.section]
            if not any(names_in(each) if not test else test in names_in(each) for each in where):
                found.append(f"line {row.line}: there is no test {name} in {', '.join(where)}")
    return found


def test_every_promise_names_tests_that_exist() -> None:
    assert faults(PAGE.read_text()) == []


def test_there_are_as_many_promises_and_attempts_as_the_page_says() -> None:
    rows = rows_of_promises(PAGE.read_text())
    attempts = {row.cells[0] for row in rows if row.cells[0].isdecimal()}
    assert len(attempts) >= LEAST
    assert len([row for row in rows if not row.cells[0].isdecimal()]) >= 100, "the tables are not read any more"


@pytest.mark.parametrize(
    ("cell", "is_wrong"),
    [
        ("`tests/docs/test_security_promises.py::test_every_promise_names_tests_that_exist`", False),
        ("`...::test_every_promise_names_tests_that_exist`", False),
        ("`test_every_promise_names_tests_that_exist[2]`", False),
        ("`tests/docs/test_security_promises.py`", False),
        ("attempts 1 to 3", False),
        ("`bench.gpu` (`two_users`)", False),
        ("`bench.nothing`", True),
        ("`tests/docs/test_security_promises.py::test_of_nothing`", True),
        ("`...::test_of_nothing`", True),
        ("`tests/docs/test_nowhere.py`", True),
        ("our good will", True),
    ],
)
def test_a_promise_without_a_test_is_found(cell: str, is_wrong: bool) -> None:
    file = "`tests/docs/test_security_promises.py`"
    text = f"## One\n\nThe tests are in {file}.\n\n| promise | held by |\n|---|---|\n| All is well. | {cell} |\n"
    assert bool(faults(text)) == is_wrong
