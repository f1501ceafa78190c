"""The same state gives the same bytes in any process, under any hash seed, in any order of arrival."""

import os
import subprocess
import sys

from tests.conftest import ROOT


def test_plans_are_equal_across_processes_hash_seeds_and_arrival_orders() -> None:
    outputs = set()
    for hash_seed, shuffle_seed in (("0", 1), ("1", 2), ("4242", 3), ("random", 4)):
        done = subprocess.run(
            [sys.executable, "-m", "tests.properties.plan_digests", str(shuffle_seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert len(done.stdout.split()) > 20
        outputs.add(done.stdout)
    assert len(outputs) == 1
