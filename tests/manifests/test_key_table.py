"""The table of keys: the chart and the documentation say what it says, and no form refuses what is read."""

import re

import pytest

from kaiwo.manifests.kinds.annotations import KNOWN_ANNOTATIONS, SCHEDULER_ANNOTATIONS, read_number
from kaiwo.manifests.kinds.key_table import KEYS, KeyRow, KeyWriter
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.gpu_request import (
    read_grade,
    read_isolation,
    read_partition,
    read_share_with,
    read_threads_milli,
)
from kaiwo.manifests.values.names import read_name
from kaiwo.manifests.values.quantities import read_duration_s, read_fraction_milli, read_gpu_mib
from kaiwo.manifests.values.setting_values import read_flag
from kaiwo.manifests.values.timestamps import read_timestamp_s
from kaiwo.model.errors import ConfigError
from scripts.admission_keys import PATH, template
from tests.conftest import ROOT

ROWS = {row.name: row for row in KEYS}
READ = {
    "gpu-fraction": read_fraction_milli,
    "gpu-memory": read_gpu_mib,
    "gpu-devices": lambda value, path: read_number(value, path, 1, 64),
    "gpu-sharing": read_flag,
    "gpu-isolation": read_isolation,
    "gpu-isolation-grade": read_grade,
    "gpu-partition": read_partition,
    "gpu-share-with": read_share_with,
    "gpu-threads": read_threads_milli,
    "queue": read_name,
    "priority": lambda value, path: read_number(value, path, -1_000_000_000, 1_000_000_000),
    "preemptible": read_flag,
    "time": read_duration_s,
    "reservation": read_name,
    "expires": read_timestamp_s,
}
VALUES = (
    "0.5", ".5", "+0.25", "1", "1.0", "1.", "01", " 0.5 ", "0.50", "0.001", "2", "0", "-1", "half", "4000", "16Gi",
    "1e3",
    "1.5Gi", " 80G", "true", "false", "True", "mps", "time-slicing", "cu-mask", "partition", "memory-capped", "CPX",
    "cpx+nps4", "any", "1g.10gb", "7g.80gb", "team-a", "a.b-c", "Team", "../x", "50", "-50", "1000000000", "9" * 40,
    "90",
    "45m", "2h30m", "1d", "1w2d3h4m5s", "1.5h", "1500ms500ms", "5m5h", "2030-01-31T18:00:00Z", "2030-01-31 18:00+02:00",
    "2030-01-31t18:00:00.5z", "tomorrow", "anyone", "nobody", "queue", "queue,user", "user, queue.namespace",
    "user,user",
)  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_form_accepts_whatever_is_read(name: str) -> None:
    accepted = [value for value in VALUES if _reads(name, value)]
    assert accepted
    row = ROWS[name]
    assert [value for value in accepted if not re.fullmatch(row.form, value) or len(value) > row.max_characters] == []
    assert any(not re.fullmatch(row.form, value) for value in VALUES)  # it refuses something


def _reads(name: str, value: str) -> bool:
    try:
        READ[name](value, FieldPath("pod", name))
    except ConfigError:
        return False
    return True


def test_every_key_that_is_read_or_written_is_in_the_table() -> None:
    assert {*KNOWN_ANNOTATIONS, *SCHEDULER_ANNOTATIONS} <= ROWS.keys()
    assert len(ROWS) == len(KEYS)


def test_the_chart_has_the_keys_of_the_table() -> None:
    assert PATH.read_text() == template(), "run: .venv/bin/python scripts/admission_keys.py && deploy/render.sh"


def test_the_documentation_has_the_table() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    missing = [line for line in map(documented, KEYS) if line not in text]
    assert not missing, "add these lines to docs/security.md:\n" + "\n".join(missing)


def documented(row: KeyRow) -> str:
    is_reserved = row.writer in (KeyWriter.SCHEDULER, KeyWriter.AGENT)
    rule = "reserved" if is_reserved else f"at most {row.max_characters} characters"
    fixed = ", fixed once the pod is bound" if row.is_request else ""
    return f"| `kaiwo.ai/{row.name}` | {row.on} | {row.writer.value} | {rule}{fixed} |"
