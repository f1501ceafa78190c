"""Replay a folder of recordings: `python -m tests.conformance.gangs DIR [--json]`.

The exit status is 1 when a recording differs, 2 when there is none to replay.
"""

import json
import sys
from pathlib import Path

from tests.conformance.gangs.replay import Report, replay_folder


def main(arguments: list[str]) -> int:
    folders = [each for each in arguments if not each.startswith("-")]
    unknown = [each for each in arguments if each.startswith("-") and each != "--json"]
    if len(folders) != 1 or unknown:
        print("usage: python -m tests.conformance.gangs DIR [--json]", file=sys.stderr)
        return 2
    folder = Path(folders[0])
    if not folder.is_dir():
        print(f"{folder} is not a folder; name one that holds recordings", file=sys.stderr)
        return 2
    report = replay_folder(folder)
    print(json.dumps(report.summary(), indent=1) if "--json" in arguments else as_text(report))
    if not report.total:
        print(f"{folder} holds no recordings", file=sys.stderr)
        return 2
    return 1 if report.failed else 0


def as_text(report: Report) -> str:
    """Differences first, sums last."""
    lines = [f"FAIL  {each['file']}: {each['difference']}" for each in report.failed]
    return "\n".join([*lines, f"recordings: {report.total - len(report.failed)}/{report.total}"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
