"""What the node agent costs on the largest AMD node: eight MI300X in CPX, 64 partitions with a process on each.

In:    a tree as the driver makes it.   Out: percent of a core that a real `kaiwo agent` takes, reporting over TLS.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench._agent_cost import agent_cost
from tests.devices.telemetry.processes import write_process
from tests.devices.trees import Box, write_box

GPUS, PARTITIONS, SECONDS = 8, 8, 20.0
FIRST_NUMBER = 24_248  # the kernel's number of the first partition
MOST_PERCENT = 1.0


def main() -> int:
    result = measure()
    print(json.dumps(result))
    if result["core_percent"] >= MOST_PERCENT:
        print(f"core_percent is {result['core_percent']}, below {MOST_PERCENT} is due", file=sys.stderr)
        return 1
    return 0


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        root = write_box(Path(folder), Box(gpus=GPUS, compute="CPX", memory="NPS4"))
        numbers = [FIRST_NUMBER + 64 * gpu + part for gpu in range(GPUS) for part in range(PARTITIONS)]
        for pid, mine in enumerate(numbers, 1000):
            write_process(root, pid, {number: 1000 * (number == mine) for number in numbers}, 20, queues=2)
        return agent_cost(SECONDS, folder)


if __name__ == "__main__":
    sys.exit(main())
