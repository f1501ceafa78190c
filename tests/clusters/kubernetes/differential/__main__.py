"""`python -m tests.clusters.kubernetes.differential [--worlds 10] [--pods 60] [--first 0] [--json]`.

The exit status is 1 when the two schedulers differ about a pod.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.clusters.kubernetes.differential.compare import compare
from tests.clusters.kubernetes.differential.tally import tally
from tests.controlplane.plane import running_plane


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=10)
    parser.add_argument("--pods", type=int, default=60, help="in each world")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_plane(Path(folder)) as plane:
        cases = asyncio.run(compare(plane, range(wanted.first, wanted.first + wanted.worlds), wanted.pods))
    differences = [case.difference() for case in cases if not case.agrees]
    summary = {"cases": len(cases), "differ": len(differences), "by_rule": tally(cases)}
    print(json.dumps(summary | {"differences": differences} if wanted.json else summary, indent=1))
    if not wanted.json:
        print("\n".join(differences[:20]))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
