"""What Prometheus reads: the names that dashboards know, and numbers that are there."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from kaiwo.devices.agent.prometheus_endpoint import HELP, metrics_text
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory
from kaiwo.devices.nvidia.discover_gpus import NvmlReader
from kaiwo.devices.sampling.sampler import Sampler
from tests.devices.agent.conftest import Start
from tests.devices.amd_trees import Box, address, write_box
from tests.devices.sampling.kfd_processes import write_process
from tests.devices.sampling.test_nvidia_gpus import LiveNvml

Rows = dict[str, list[tuple[dict[str, str], float]]]


def parse(text: str) -> Rows:
    """By the name that stands on the page; Prometheus' own parser must read it."""
    rows: Rows = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            name = one.name if one.name in HELP else one.name.removesuffix("_total")  # the parser adds that to counters
            rows.setdefault(name, []).append((one.labels, one.value))
    return rows


def of_tree(root: Path) -> Rows:
    inventory = discover(str(root), has_telemetry=False)
    return parse(metrics_text(inventory, Sampler(inventory, str(root)).sample(0)))


def test_amd_names_are_those_of_amds_exporter(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=2, compute="CPX", memory="NPS4"))
    write_process(tmp_path, 77, {24_249: 1024}, busy_units=19)
    rows = of_tree(tmp_path)
    labels, value = rows["gpu_gfx_activity"][1]
    assert value == 37
    assert labels["gpu_id"] == "1"
    assert (labels["gpu_partition_id"], labels["gpu_compute_partition_type"]) == ("0", "cpx")
    assert labels["card_model"] == "AMD Instinct MI300X OAM"
    assert [value for _, value in rows["gpu_used_vram"]] == [297, 297]
    assert rows["gpu_nodes_total"][0][1] == 2
    assert {value for _, value in rows["gpu_health"]} == {1}
    parts = {labels["partition"]: value for labels, value in rows["kaiwo_partition_memory_used_mib"]}
    assert len(parts) == 16
    assert parts[f"{address(0)}-p1"] == 1024
    labels, value = rows["kaiwo_process_busy_percent"][0]
    assert (labels["device"], labels["pid"], value) == (f"{address(0)}-p1", "77", 50)


def test_nvidia_names_are_those_of_dcgm() -> None:
    nvml = LiveNvml(1, ecc=(4, 0))
    inventory = Inventory("box", tuple(NvmlReader(nvml, False).gpus()[0]))
    rows = parse(metrics_text(inventory, Sampler(inventory, "/nowhere", nvml).sample(0)))
    labels, value = rows["DCGM_FI_DEV_GPU_UTIL"][0]
    assert value == 55
    assert labels == {
        "gpu": "0", "UUID": "GPU-0", "pci_bus_id": "00000000:1B:00.0", "device": "nvidia0", "modelName": "NVIDIA H200",
        "Hostname": "box",
    }  # fmt: skip
    assert rows["DCGM_FI_DEV_FB_USED"][0][1] + rows["DCGM_FI_DEV_FB_FREE"][0][1] == 141 * 1024
    assert rows["DCGM_FI_DEV_POWER_USAGE"][0][1] == 123
    assert rows["DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"][0][1] == 4
    assert not any(name.startswith("gpu_") for name in rows)


def test_the_names_are_in_the_exporters_own_lists(gpu_fixtures: Path) -> None:
    dcgm = (gpu_fixtures / "nvidia-dcgm-exporter" / "etc" / "default-counters.csv").read_text()
    amd = (gpu_fixtures / "rocm-device-metrics-exporter" / "docs" / "configuration" / "metricslist.md").read_text()
    for name in HELP:
        if name.startswith("DCGM"):
            assert name in dcgm
        elif name.startswith("gpu_"):
            assert name.upper() in amd


def test_odd_signs_in_labels_do_not_break_the_page(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1))
    inventory = discover(str(tmp_path))
    gpu = replace(inventory.gpus[0], product='a "quoted"\\ name\nin two lines')
    odd = replace(inventory, gpus=(gpu,))
    rows = parse(metrics_text(odd, Sampler(odd, str(tmp_path)).sample(0)))
    assert rows["gpu_gfx_activity"][0][0]["card_model"] == gpu.product


def test_the_endpoint_answers(start_agent: Start) -> None:
    agent = start_agent(kubelet_folder="", metrics_host="127.0.0.1", metrics_port=0)
    assert agent.endpoint is not None
    base = f"http://127.0.0.1:{agent.endpoint.port}"
    with urllib.request.urlopen(f"{base}/metrics") as answer:
        assert len(parse(answer.read().decode())["gpu_health"]) == 4
    with urllib.request.urlopen(f"{base}/healthz") as answer:
        assert answer.read() == b"ok\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{base}/other")
