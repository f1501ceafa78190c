"""Run every case of a folder and count.

In:    a folder of JSON files: lists of scenarios, and rule tables in `table_*.json`.   Out: one outcome a case, and
the sums. What is no list (a specification, a note) holds no cases.
Never: lets one broken case stop the others.
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
        cases = json.loads(path.read_text())
        if path.name.startswith("table_"):
            report.specs += [_run_spec(spec, path.name, number) for number, spec in enumerate(cases)]
        elif isinstance(cases, list):
            report.scenarios += [_run_scenario(case, path.name) for case in cases]
    return report


def _run_spec(spec: Case, file: str, number: int) -> Outcome:
    outcome = Outcome(f"{file.removesuffix('.json')}/{number:03d} {spec['name']}", file)
    return _tried(outcome, check_spec, spec)


def _run_scenario(case: Case, file: str) -> Outcome:
    name, tags = case.get("id") or f"{file} without an id", tuple(case.get("tags") or ())
    return _tried(Outcome(name, file, case.get("core", True), tags), play, case)


def _tried(outcome: Outcome, check: Callable[[Case], list[str]], case: Case) -> Outcome:
    try:
        outcome.differences = check(case)
    except NotPlayedError as error:
        outcome.was_run, outcome.differences = False, [f"not run: {error}"]
    except Exception:  # one broken case is one failure; its last lines say where
        outcome.differences = traceback.format_exc().splitlines()[-3:]
    return outcome


def _sums(outcomes: Iterable[Outcome]) -> dict[str, int]:
    listed = list(outcomes)
    return {"total": len(listed), "passed": sum(outcome.passed for outcome in listed)}
