"""What the exporters of AMD and NVIDIA write becomes readings; what anybody else writes does no harm."""

from hypothesis import given
from hypothesis import strategies as st

from kaiwo.telemetry.exporters.gpu_readings import NAMES, GpuReading, read_gpus
from kaiwo.telemetry.exporters.text_format import MAX_LINE, MAX_SAMPLES, MetricSample, read_metrics

AMD = """# HELP gpu_gfx_activity Graphics engine usage in percent.
# TYPE gpu_gfx_activity gauge
gpu_gfx_activity{card_model="xxxx",gpu_compute_partition_type="spx",gpu_id="0",gpu_partition_id="0",hostname="n"} 87
gpu_gfx_activity{gpu_id="1",gpu_partition_id="0"} 12.4
gpu_used_vram{gpu_id="0",gpu_partition_id="0"} 120000
gpu_total_vram{gpu_id="0",gpu_partition_id="0"} 196592
gpu_average_package_power{gpu_id="0",gpu_partition_id="0"} 540
gpu_package_power{gpu_id="0",gpu_partition_id="0"} 712
gpu_edge_temperature{gpu_id="1",gpu_partition_id="0"} 40
gpu_junction_temperature{gpu_id="0",gpu_partition_id="0"} 61
"""
NVIDIA = """DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",pci_bus_id="00000000:18:00.0",modelName="H200"} 55
DCGM_FI_DEV_FB_USED{gpu="0",pci_bus_id="00000000:18:00.0"} 1000
DCGM_FI_DEV_FB_FREE{gpu="0",pci_bus_id="00000000:18:00.0"} 142000
DCGM_FI_DEV_POWER_USAGE{gpu="0",pci_bus_id="00000000:18:00.0"} 350.6 1700000000000
DCGM_FI_DEV_GPU_TEMP{gpu="0",pci_bus_id="00000000:18:00.0"} NaN
DCGM_FI_DEV_GPU_UTIL{gpu="0",GPU_I_ID="1",GPU_I_PROFILE="1g.18gb"} 99
"""


def test_amds_exporter() -> None:
    assert read_gpus(AMD) == (
        [GpuReading(0, 0, "", 87, 120_000, 196_592, 712, 61), GpuReading(1, utilisation_percent=12, temperature_c=40)],
        "",
    )
    prefixed = AMD.replace("\ngpu_", "\namd_gpu_")
    assert read_gpus(prefixed) == read_gpus(AMD)


def test_nvidias_exporter_and_what_it_says_of_instances() -> None:
    gpus, problem = read_gpus(NVIDIA)
    assert gpus == [GpuReading(0, 0, "0000:18:00.0", 55, 1_000, 143_000, 351)]
    assert problem == "1 of its samples cannot be read or are impossible"


def test_impossible_values_are_left_out_and_told() -> None:
    text = 'gpu_gfx_activity{gpu_id="0"} 101\ngpu_package_power{gpu_id="0"} -5\ngpu_used_vram{gpu_id="0"} 1e300\n'
    assert read_gpus(text + 'gpu_total_vram{gpu_id="0"} 7') == (
        [GpuReading(0, memory_mib=7)],
        "3 of its samples cannot be read or are impossible",
    )


def test_a_page_that_is_no_exporter_is_told() -> None:
    assert read_gpus("<html>Welcome</html>")[0] == []
    assert "exporter of AMD or NVIDIA" in read_gpus("up 1\n")[1]


def test_labels_may_contain_everything_that_is_escaped() -> None:
    line = r'up{a="x\"y}",b = "c\\d\n", } 3'
    assert read_metrics(line, {"up"}).samples == [MetricSample("up", {"a": 'x"y}', "b": "c\\d\n"}, 3.0)]


def test_lines_that_are_too_long_or_broken_are_counted() -> None:
    broken = ["up{a=1} 3", 'up{a="x} 3', "up", "up 1 2 3", "up x", 'up{a="' + "x" * MAX_LINE + '"} 1', "up{ 1"]
    found = read_metrics("\n".join([*broken, "up 1"]), {"up"})
    assert (found.samples, found.unreadable) == ([MetricSample("up", {}, 1.0)], len(broken))


def test_an_endless_list_of_gpus_is_cut() -> None:
    text = "".join(f'gpu_gfx_activity{{gpu_id="{n % 10_000}"}} 5\n' for n in range(MAX_SAMPLES + 500))
    assert len(read_gpus(text)[0]) == 1024


words = st.sampled_from(
    [*sorted(NAMES)[:4], "{", "}", '"', "\\", ",", "=", "gpu_id", '="1"', " ", "\n", "9" * 400, "NaN", "-1", "#", "é"]
)


@given(st.lists(words | st.text(max_size=8), max_size=60).map("".join))
def test_any_text_is_read_without_an_error(text: str) -> None:
    gpus, _ = read_gpus(text)
    assert all(each.utilisation_percent is None or 0 <= each.utilisation_percent <= 100 for each in gpus)
