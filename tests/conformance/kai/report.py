"""Run every case of a folder and count.

In:    a folder of JSON files: lists of scenarios, and rule tables in `table_*.json`.   Out: one outcome a case, and
the sums. What is no list (a specification, a note) holds no cases; a file that cannot be read is one case that failed.
Never: lets one broken case or file stop the others.
"""

import json
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.kai.scenarios import NotPlayedError, play
from tests.conformance.kai.tables import check_spec

Case = dict[str, Any]


@dataclass
class Outcome:
    """How one case ended."""

    id: str
    file: str
    core: bool = True
    tags: tuple[str, ...] = ()
    differences: list[str] = field(default_factory=list)
    was_run: bool = True

    @property
    def passed(self) -> bool:
        return self.was_run and not self.differences

    @property
    def word(self) -> str:
        return "pass" if self.passed else "FAIL" if self.was_run else "----"


@dataclass
class Report:
    """All outcomes of a folder."""

    specs: list[Outcome] = field(default_factory=list)
    scenarios: list[Outcome] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return all(outcome.passed for outcome in (*self.specs, *self.scenarios))

    def summary(self) -> dict[str, Any]:
        """The sums, and every case that did not pass."""
        tags = sorted({tag for outcome in self.scenarios for tag in outcome.tags})
        files = sorted({outcome.file for outcome in self.specs})
        return {
            **_sums(self.scenarios),
            "not_run": sum(not outcome.was_run for outcome in self.scenarios),
            "core": _sums(outcome for outcome in self.scenarios if outcome.core),
            "tags": {tag: _sums(outcome for outcome in self.scenarios if tag in outcome.tags) for tag in tags},
            "tables": {file: _sums(outcome for outcome in self.specs if outcome.file == file) for file in files},
            "failed": [
                {"id": each.id, "core": each.core, "tags": list(each.tags), "difference": each.differences}
                for each in (*self.specs, *self.scenarios)
                if not each.passed
            ],
        }


def run_folder(folder: Path) -> Report:
    """Every case in the order of the files' names."""
    report = Report()
    for path in sorted(folder.glob("*.json")):
        is_table = path.name.startswith("table_")
        outcomes = report.specs if is_table else report.scenarios
        try:
            cases = json.loads(path.read_text("utf-8-sig"))
        except (OSError, ValueError) as error:
            outcomes.append(Outcome(path.name, path.name, differences=[f"the file cannot be read: {error}"]))
            continue
        for number, case in enumerate(cases if isinstance(cases, list) else ()):
            outcomes.append(_run(case, path.name, number, is_table))
    return report


def _run(case: Any, file: str, number: int, is_table: bool) -> Outcome:
    known = case if isinstance(case, dict) else {}
    place = f"{file.removesuffix('.json')}/{number:03d}"
    if is_table:
        outcome, check = Outcome(f"{place} {known.get('name', '')}".rstrip(), file), check_spec
    else:
        outcome, check = Outcome(str(known.get("id") or place), file, bool(known.get("core", True)), _tags(known)), play
    if not isinstance(case, dict):
        outcome.differences = [f"a case is an object with fields, this is {json.dumps(case)[:80]}"]
        return outcome
    return _tried(outcome, check, case)


def _tags(case: Case) -> tuple[str, ...]:
    """One tag may stand without a list around it."""
    tags = case.get("tags") or []
    return tuple(map(str, tags if isinstance(tags, list) else (tags,)))


def _tried(outcome: Outcome, check: Callable[[Case], list[str]], case: Case) -> Outcome:
    try:
        outcome.differences = check(case)
    except NotPlayedError as error:
        outcome.was_run, outcome.differences = False, [f"not run: {error}"]
    except Exception as error:  # one broken case is one failure; its last lines say where
        lacking = [f"the case says nothing of {error}"] if isinstance(error, KeyError) else []
        outcome.differences = lacking + traceback.format_exc().splitlines()[-3:]
    return outcome


def _sums(outcomes: Iterable[Outcome]) -> dict[str, int]:
    listed = list(outcomes)
    return {"total": len(listed), "passed": sum(outcome.passed for outcome in listed)}
