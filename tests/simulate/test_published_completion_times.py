"""On Muri's traces jobs are done sooner than the published schedulers had them done."""

from pathlib import Path

import pytest

from kaiwo.simulate.job_run import JobRun, equal_nodes
from kaiwo.simulate.trace_files import find_file
from kaiwo.simulate.workloads.published_jobs import muri_jobs
from tests.conftest import ROOT

DATA = ROOT.parent / "shared" / "traces" / "muri"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"Muri's traces are not at {DATA}")
@pytest.mark.parametrize(
    ("policy", "published_ks"),
    [("least-attained-service", 347), ("shortest-remaining-service", 185)],  # Tiresias; SRSF
)
def test_jobs_of_trace_3_are_done_no_later_than_published(policy: str, published_ks: int) -> None:
    jobs = tuple(muri_jobs(find_file(Path(DATA), "trace3.csv")))
    found = JobRun("trace3", equal_nodes(8), jobs, policy).run().figures
    assert found.ended == len(jobs) == 992
    assert found.average_jct_s <= published_ks * 1000
