"""What work says of being stopped: how long it waits before others go for it, and what it would lose itself."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.timestamps import read_past_timestamp_s
from kaiwo.model.errors import ConfigError
from tests.manifests.texts import one, pod

SAVED_S = 1_769_882_400  # 2026-01-31T18:00:00Z


@pytest.mark.parametrize("prefix", ["kaiwo.ai/", "kaiwo.silogen.ai/"])
def test_annotations_say_it(prefix: str) -> None:
    notes = {
        prefix + "preemption-delay": "10m",
        prefix + "restart-cost": "5m",
        prefix + "last-checkpoint": "2026-01-31T18:00:00Z",
    }
    workload, _ = one(pod(notes))
    assert (workload.preemption_delay_s, workload.restart_s, workload.checkpoint_s) == (600, 300, SAVED_S)


def test_the_short_form_says_it() -> None:
    workload, _ = one({"name": "t", "preemptionDelay": "1h", "restartCost": 90})
    assert (workload.preemption_delay_s, workload.restart_s, workload.checkpoint_s) == (3600, 90, 0)


@pytest.mark.parametrize(
    ("document", "field", "way_out"),
    [
        (pod({"kaiwo.ai/preemption-delay": "soon"}), "kaiwo.ai/preemption-delay", 'write it as "45m"'),
        (pod({"kaiwo.ai/restart-cost": "-5m"}), "kaiwo.ai/restart-cost", 'write it as "45m"'),
        (pod({"kaiwo.ai/last-checkpoint": "yesterday"}), "kaiwo.ai/last-checkpoint", "whole seconds since 1970"),
        ({"name": "t", "preemptionDelay": "0"}, "preemptionDelay", "leave it out"),
        ({"name": "t", "restartCost": []}, "restartCost", 'write it as "2h30m"'),
    ],
)
def test_a_slip_gets_one_sentence_with_the_way_out(document: Any, field: str, way_out: str) -> None:
    with pytest.raises(ConfigError) as caught:
        one(document)
    assert caught.value.field == field
    assert way_out in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "at_s"),
    [
        ("2026-01-31T18:00:00Z", SAVED_S),
        ("2026-01-31T20:00:00+02:00", SAVED_S),
        (str(SAVED_S), SAVED_S),
        (SAVED_S, SAVED_S),
        (" 7 ", 7),
    ],
)
def test_a_moment_of_the_past_has_a_zone_or_is_counted_in_seconds(written: object, at_s: int) -> None:
    assert read_past_timestamp_s(written, FieldPath("it", "at")) == at_s


@pytest.mark.parametrize(
    "written",
    [
        "",
        "0",
        0,
        "-5",
        "1.5",
        1.5,
        True,
        None,
        [],
        "2026-01-31T18:00:00",
        "2026-01-31",
        "1769882400000",
        "٣",
        "9" * 5000,
    ],
)
def test_everything_else_is_refused(written: object) -> None:
    """Milliseconds, local times and times that no clock has shown are slips, not moments."""
    with pytest.raises(ConfigError, match="whole seconds since 1970"):
        read_past_timestamp_s(written, FieldPath("it", "at"))


@given(st.text() | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})"))
def test_whatever_a_program_writes_is_a_moment_or_one_sentence(written: str) -> None:
    with contextlib.suppress(ConfigError):
        assert read_past_timestamp_s(written, FieldPath("it", "at")) > 0
