"""Every example is accepted, and the package stays light and within its layer."""

import subprocess
import sys

import pytest

from kaiwo.manifests import describe_workload, parse_all
from tests.conftest import ROOT

WANTS = {
    "short-form": ["1 CPU", "4 GPUs", "0.25 GPU", *["16000 MiB of a GPU"] * 10],
    "gang": ["4-6 pods x 8 GPUs", "4 CPUs + 2 pods x 4 GPUs"],
    "fraction-pod": ["0.5 GPU", "2 x 16000 MiB of a GPU"],
    "job": ["4 pods x 2 GPUs", "0.5 CPU"],
    "kaiwojob": ["2 pods x 8 GPUs", "4 CPUs"],
    "queue": [],
}


@pytest.mark.parametrize("name", WANTS)
def test_an_example_means_what_it_says(name: str) -> None:
    parsed = parse_all((ROOT / "examples" / f"{name}.yaml").read_bytes())
    assert [describe_workload(workload) for workload, _ in parsed.submissions] == WANTS[name]
    assert len(parsed.queues) == (3 if name == "queue" else 0)


def test_reading_a_form_loads_neither_numpy_nor_yaml() -> None:
    code = 'import sys, kaiwo.manifests as m; m.parse(m.read_json(\'{"name": "t"}\')); print(*sys.modules)'
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "yaml", "difflib", "asyncio"} & set(loaded)
