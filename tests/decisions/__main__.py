"""Write the fingerprints of all stories anew: `python -m tests.decisions [STORIES]`."""

import json
import sys
from pathlib import Path

from tests.decisions.fingerprints import fingerprints

STORIES = 240


def main(stories: int) -> None:
    recorded = {str(seed): fingerprints(seed) for seed in range(stories)}
    path = Path(__file__).parent / "recorded.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(recorded, indent=0) + "\n")
    changed = [seed for seed in recorded if before.get(seed, recorded[seed]) != recorded[seed]]
    print(f"{len(recorded)} stories are recorded; {len(changed)} of those known before are decided differently")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else STORIES)
