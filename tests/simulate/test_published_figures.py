"""The baselines give the published figures on the published trace, seed by seed: this proves the replay."""

import csv
import gzip
from pathlib import Path

import pytest

from kaiwo.simulate.openb_run import run_openb
from kaiwo.simulate.openb_trace import read_openb
from tests.conftest import ROOT

DATA = ROOT.parent / "shared" / "traces" / "openb"
TOLERANCE = 0.1

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the openb trace is not at {DATA}"),
]


def published(name: str, variant: str, policy: str, seed: int) -> dict[str, str]:
    with gzip.open(Path(DATA, f"{name}.csv.gz"), "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["seed"] == str(seed)]
    (found,) = [
        row for row in rows if row["workload"].endswith(f"_{variant}") and row["sc_policy"].endswith(f"-{policy}")
    ]
    return found


@pytest.mark.parametrize(
    ("policy", "title", "variant", "seed"),
    [
        ("fgd", "FGD", "cpu250", 43),
        ("best-fit", "BestFit", "gpuspec10", 42),
        ("fgd", "FGD", "gpuspec33", 43),
        ("gpu-packing", "GpuPacking", "default", 42),
    ],
)
def test_a_baseline_reproduces_its_published_figures(policy: str, title: str, variant: str, seed: int) -> None:
    """These are the most sensitive: other sums, or lists of models written differently, move them too far."""
    figures = run_openb(read_openb(DATA, variant), seed, policy, "known")
    allocated = published("published_allo", variant, title, seed)
    assert figures.allocated_at_100 == pytest.approx(float(allocated["100"]), abs=TOLERANCE)
    assert figures.allocated_at_130 == pytest.approx(float(allocated["130"]), abs=TOLERANCE)
    ratio = published("published_frag_ratio", variant, title, seed)
    for load, value in figures.fragmentation_ratio.items():
        assert value == pytest.approx(float(ratio[load]), abs=TOLERANCE)
