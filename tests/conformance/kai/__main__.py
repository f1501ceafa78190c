"""Run a folder of cases: `python -m tests.conformance.kai DIR [--json]`.

The exit status is 1 when a case fails or was not run, and 2 when there is no case.
"""

import json
import sys
from pathlib import Path

from tests.conformance.kai.report import Report, run_folder


def main(arguments: list[str]) -> int:
    folders = [each for each in arguments if not each.startswith("-")]
    unknown = [each for each in arguments if each.startswith("-") and each != "--json"]
    if len(folders) != 1 or unknown:
        print("usage: python -m tests.conformance.kai DIR [--json]", file=sys.stderr)
        return 2
    folder = Path(folders[0])
    if not folder.is_dir():
        print(f"{folder} is not a folder; name one that holds cases", file=sys.stderr)
        return 2
    report = run_folder(folder)
    print(json.dumps(report.summary(), indent=1) if "--json" in arguments else as_text(report))
    if not (report.specs or report.scenarios):
        print(f"{folder} holds no cases: no JSON file right in it is a list of them", file=sys.stderr)
        return 2
    return 0 if report.is_good else 1


def as_text(report: Report) -> str:
    """One line a case, differences below it, sums last."""
    lines: list[str] = []
    for outcome in (*report.specs, *report.scenarios):
        lines.append(f"{outcome.word}  {outcome.id}")
        lines += [f"      {difference}" for difference in outcome.differences]
    summary = report.summary()
    for file, sums in summary["tables"].items():
        lines.append(f"{file}: {sums['passed']}/{sums['total']}")
    core = summary["core"]
    lines.append(f"core scenarios: {core['passed']}/{core['total']}")
    lines.append(f"scenarios: {summary['passed']}/{summary['total']}, {summary['not_run']} not run")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
