"""The lines between agents and Kaiwo."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.devices.agent.kubelet.bound_pods import decode_granted, encode_granted
from kaiwo.devices.agent_messages import (
    MAX_LINE_BYTES,
    Correction,
    GpuSample,
    Hello,
    LineReader,
    ProcessUse,
    Sample,
    decode_line,
    encode_line,
)
from kaiwo.model.errors import ClusterError, ConfigError
from kaiwo.model.gpus.gpu import Share
from tests.devices.fake_inventory import fake_inventory

shares = st.builds(Share, st.text("0123456789abcdef:.-p", min_size=1), st.integers(0, 1000), st.integers(0, 1 << 30))
LINES = (
    Hello("n", "0.1", "boot", fake_inventory(count=2, mode=("CPX", "NPS4"))),
    Sample("n", 1, 12.5, (GpuSample("a", processes=(ProcessUse(1, "a", 2, 3, 4),)),), ("a note",)),
    Correction("n", "team", "pod", "uid", (Share("a", 500, 1),), "because"),
)


@given(st.integers(1, 400))
def test_lines_are_read_back_from_pieces_of_any_size(size: int) -> None:
    data = b"".join(map(encode_line, LINES))
    reader = LineReader()
    found = [line for start in range(0, len(data), size) for line in reader.feed(data[start : start + size])]
    assert tuple(found) == LINES


@given(st.binary(max_size=200))
def test_nonsense_is_one_error(data: bytes) -> None:
    try:
        decode_line(data)
    except ClusterError:
        return
    raise AssertionError("nonsense was understood")


def test_a_line_without_end_is_cut_off() -> None:
    reader = LineReader()
    reader.feed(b"x" * MAX_LINE_BYTES)
    with pytest.raises(ClusterError, match="longer than"):
        reader.feed(b"x")


def test_fields_of_a_newer_agent_are_skipped() -> None:
    assert decode_line(b'{"type":"sample","node":"n","number":1,"time_s":0,"mood":"good"}') == Sample("n", 1, 0.0)


@given(st.lists(shares, max_size=8))
def test_assigned_devices_are_read_back(found: list[Share]) -> None:
    assert decode_granted(encode_granted(tuple(found))) == tuple(found)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"gpu":"a"}]', '[{"gpu":"","milli":5,"mib":1}]', '[{"gpu":"a","milli":1001,"mib":1}]']
)
def test_an_annotation_that_is_none_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="granted-devices"):
        decode_granted(text)
