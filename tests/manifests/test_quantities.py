"""Quantities are exact, and an impossible one gets a sentence."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.quantities import (
    read_cpu_milli,
    read_duration_s,
    read_fraction_milli,
    read_gpu_mib,
    read_memory_bytes,
    read_memory_mib,
    read_whole_gpus,
)
from kaiwo.model.errors import ConfigError

Reader = Callable[[object, FieldPath], int]
PLACE = FieldPath("Pod 'x'", "the.field")


def read_gpus(value: object, place: FieldPath) -> int:
    return read_whole_gpus(value, place, "kaiwo.ai/gpu-fraction")


@pytest.mark.parametrize(
    ("reader", "value", "result"),
    [
        (read_cpu_milli, "4", 4000),
        (read_cpu_milli, 4, 4000),
        (read_cpu_milli, 0.5, 500),
        (read_cpu_milli, "500m", 500),
        (read_cpu_milli, "1500u", 2),  # never less than asked for
        (read_cpu_milli, "1n", 1),
        (read_cpu_milli, "2k", 2_000_000),
        (read_cpu_milli, "1e1", 10_000),
        (read_cpu_milli, " 4 ", 4000),
        (read_cpu_milli, ".5", 500),
        (read_cpu_milli, 0, 0),
        (read_memory_bytes, "1Ki", 1024),
        (read_memory_bytes, "1k", 1000),
        (read_memory_bytes, "1.5Gi", 3 << 29),
        (read_memory_bytes, "128974848", 128974848),
        (read_memory_bytes, "100m", 1),  # a tenth of a byte, rounded up
        (read_memory_bytes, "1e3", 1000),
        (read_memory_mib, "16Gi", 16384),
        (read_memory_mib, "16G", 15259),
        (read_memory_mib, 0, 0),
        (read_fraction_milli, "0.5", 500),
        (read_fraction_milli, 0.1, 100),
        (read_fraction_milli, 0.007 * 10, 70),
        (read_fraction_milli, "0.01", 10),
        (read_fraction_milli, "0.333", 333),
        (read_fraction_milli, "1", 1000),
        (read_fraction_milli, 1.0, 1000),
        (read_fraction_milli, "0.500000", 500),
        (read_gpu_mib, "4000", 4000),
        (read_gpu_mib, 4000, 4000),
        (read_gpu_mib, "16Gi", 16384),
        (read_gpu_mib, "4000Mi", 4000),
        (read_gpus, "8", 8),
        (read_gpus, 0, 0),
        (read_gpus, 64, 64),
        (read_gpus, "2000m", 2),
        (read_duration_s, 90, 90),
        (read_duration_s, "90", 90),
        (read_duration_s, "45m", 2700),
        (read_duration_s, "2h30m", 9000),
        (read_duration_s, "1d", 86_400),
        (read_duration_s, "1w2d", 777_600),
        (read_duration_s, "1h30m0s", 5400),
        (read_duration_s, "1.5h", 5400),
        (read_duration_s, "2000ms", 2),
    ],
)
def test_quantities_are_exact(reader: Reader, value: object, result: int) -> None:
    assert reader(value, PLACE) == result


@pytest.mark.parametrize(
    ("reader", "value", "parts"),
    [
        (read_cpu_milli, "four", ["not a quantity", '"500m"']),
        (read_cpu_milli, "", ["not a quantity"]),
        (read_cpu_milli, "-1", ["negative"]),
        (read_cpu_milli, True, ["is true", "not a quantity"]),
        (read_cpu_milli, None, ["is empty"]),
        (read_cpu_milli, [4], ["a list"]),
        (read_cpu_milli, "4 cores", ["not a quantity"]),
        (read_cpu_milli, "1e999999999", ["not a quantity"]),
        (read_cpu_milli, "9" * 1000, ["not a quantity"]),
        (read_cpu_milli, "1e30", ["too much", "100,000 cores"]),
        (read_cpu_milli, float("nan"), ["not a quantity"]),
        (read_cpu_milli, "٤", ["not a quantity"]),
        (read_memory_bytes, "-1Gi", ["negative"]),
        (read_memory_bytes, "16GB", ['"GB" is not a unit', '"16Gi"']),
        (read_memory_bytes, "16gb", ['"16Gi"']),
        (read_memory_bytes, "16 Gi", ["not a quantity"]),
        (read_memory_bytes, "9Ei", ["too much", "1Pi"]),
        (read_memory_mib, "16", ["less than 1 MiB", '"16Gi"']),
        (read_memory_mib, 1024, ["less than 1 MiB"]),
        (read_fraction_milli, "1.5", ["0.01 to 1", "whole GPUs"]),
        (read_fraction_milli, "0", ["0.01 to 1"]),
        (read_fraction_milli, "-0.5", ["0.01 to 1"]),
        (read_fraction_milli, "0.001", ["0.01 to 1"]),
        (read_fraction_milli, "0.3333", ["0.001", '"0.333"']),
        (read_fraction_milli, "50%", ["percent", '"0.5"']),
        (read_fraction_milli, "1/2", ['"0.5"']),
        (read_fraction_milli, "500m", ['"0.5"']),
        (read_fraction_milli, "half", ['"0.5"']),
        (read_fraction_milli, 1e-7, ["0.01 to 1"]),
        (read_gpu_mib, "-4000", ["negative"]),
        (read_gpu_mib, "0", ["less than 1 MiB"]),
        (read_gpu_mib, "500m", ["less than 1 MiB"]),
        (read_gpu_mib, "0.5", ["whole MiB"]),
        (read_gpu_mib, "1Pi", ["too much"]),
        (read_gpu_mib, "lots", ["not a quantity"]),
        (read_gpus, 500, ["asks for 500 whole GPUs, not half of one", 'kaiwo.ai/gpu-fraction: "0.5"']),
        (read_gpus, "250", ["not 0.25 of one", 'kaiwo.ai/gpu-fraction: "0.25"']),
        (read_gpus, 65, ["65 whole GPUs", "at most 64", "more pods"]),
        (read_gpus, 100, ["asks for 100 whole GPUs; one pod gets at most 64: for more GPUs in all, ask for more pods"]),
        (read_gpus, 250, ["not 0.25 of one"]),
        (read_gpus, 0.5, ["counts whole GPUs", 'kaiwo.ai/gpu-fraction: "0.5"']),
        (read_gpus, "500m", ['kaiwo.ai/gpu-fraction: "0.5"']),
        (read_gpus, "1.5", ["counts whole GPUs"]),
        (read_gpus, -1, ["negative"]),
        (read_gpus, 9223372036854775807, ["at most 64"]),
        (read_duration_s, "1:30:00", ["not a duration", '"2h30m"']),
        (read_duration_s, "PT5M", ["not a duration"]),
        (read_duration_s, "-5m", ["not a duration"]),
        (read_duration_s, 0, ["1 second"]),
        (read_duration_s, "300ms", ["whole seconds"]),
        (read_duration_s, "99999d", ["10 years"]),
        (read_duration_s, "1h 30m", ["not a duration"]),
        (read_duration_s, {"hours": 1}, ["a mapping"]),
    ],
)
def test_impossible_quantities_get_a_sentence(reader: Reader, value: object, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        reader(value, PLACE)
    message = str(caught.value)
    assert message.startswith("Pod 'x': the.field ")
    assert caught.value.field == "the.field"
    assert len(message) < 300
    assert [part for part in parts if part not in message] == [], message


@given(st.integers(10, 1000))
def test_every_milli_is_a_fraction(milli: int) -> None:
    assert read_fraction_milli(milli / 1000, PLACE) == milli
    assert read_fraction_milli(f"{milli / 1000:.3f}", PLACE) == milli


@given(st.one_of(st.text(), st.floats(), st.integers(), st.booleans(), st.none()))
def test_no_value_breaks_a_reader(value: object) -> None:
    for reader in (read_cpu_milli, read_memory_mib, read_fraction_milli, read_gpu_mib, read_gpus, read_duration_s):
        try:
            result = reader(value, PLACE)
        except ConfigError as error:
            result = str(error).index("Pod 'x': the.field ")
        assert result >= 0
