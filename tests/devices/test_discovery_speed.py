"""A node of 64 devices is read within the time that was promised."""

import time
from pathlib import Path

import pytest

from kaiwo.devices.discover import discover
from tests.devices.amd_trees import Box, write_box


@pytest.mark.serial
def test_64_devices_take_less_than_50_ms(tmp_path: Path) -> None:
    root = str(write_box(tmp_path, Box(gpus=8, compute="CPX", memory="NPS4")))
    took_ms = []
    for _ in range(15):
        began = time.process_time()
        found = discover(root)
        took_ms.append((time.process_time() - began) * 1000)
    assert sum(len(gpu.partitions) for gpu in found.gpus) == 64
    # Measured: 13 ms. Other work on the machine hardly changes what we compute, as it does the time on the wall.
    assert min(took_ms) < 50, took_ms
