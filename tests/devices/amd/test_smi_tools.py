"""AMD's tools of many generations: rocm-smi from ROCm 4.3 on, amd-smi from its first JSON to today's."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.devices.amd import smi_tools
from kaiwo.devices.amd.smi_tools import json_documents, mib, number, read_smi, whole
from kaiwo.devices.discover import discover
from kaiwo.devices.gpu_names import amd_model, parse_target, short_product, target_name
from kaiwo.devices.inventory import Inventory
from kaiwo.model.errors import ConfigError
from tests.devices.amd_trees import Box, address, write_box

ROCM_SMI = "influxdata-telegraf/plugins/inputs/amd_rocm_smi/testdata"


def told(tmp_path: Path, *documents: Any) -> Inventory:
    """What discovery makes of the tool alone."""
    return discover(str(tmp_path), "\n".join(json.dumps(document) for document in documents))


@pytest.mark.parametrize(
    ("file", "model", "gpus", "memory_mib", "pci", "power_w"),
    [
        ("mi100_rocm571", "MI100", 6, 32752, "0000:1e:00.0", 39),
        ("mi100_rocm602", "MI100", 4, 32752, "0000:83:00.0", 36),
        ("rx6700xt_rocm430", "amd-73df", 1, 12272, "0000:07:00.0", 6),
        ("rx6700xt_rocm571", "Radeon-RX-6700", 1, 12272, "0000:07:00.0", 6),
        ("rx6700xt_rocm602", "Radeon-RX-6700", 1, 12272, "0000:07:00.0", None),  # "N/A (Secondary die)"
        ("rx6700xt_rocm612", "Radeon-RX-6700", 1, 12272, "0000:07:00.0", 6),
        ("vega-10-XT", "Radeon-Pro-WX-9100", 1, 16368, "0000:04:00.0", 15),
        ("vega-20-WKS-GL-XE", "MI50", 1, 32752, "0000:63:00.0", 26),
    ],
)
def test_rocm_smi_of_every_generation(
    gpu_fixtures: Path, tmp_path: Path, file: str, model: str, gpus: int, memory_mib: int, pci: str, power_w: int | None
) -> None:
    found = discover(str(tmp_path), (gpu_fixtures / ROCM_SMI / f"{file}.json").read_text())
    assert len(found.gpus) == gpus
    first = found.gpus[0]
    assert (first.model, first.memory_mib, first.memory_from) == (model, memory_mib, "driver")
    assert (first.pci, first.telemetry.power_w) == (pci, power_w)
    assert first.telemetry.utilisation_percent == 0
    assert first.telemetry.temperature_c
    assert first.telemetry.memory_used_mib
    assert first.health == "healthy"
    assert {link.kind for gpu in found.gpus for link in gpu.links} == ({"pcie"} if gpus > 1 else set())
    if gpus > 1:
        assert {len(gpu.links) for gpu in found.gpus} == {gpus - 1}
        assert {(link.weight, link.hops) for link in first.links} == {(40, 2)}


@pytest.mark.parametrize(("generation", "pci", "busy"), [("rocm5", "0000:2f:00.0", 10), ("rocm6", "0000:29:00.0", 0)])
def test_rocm_smi_of_an_mi250(gpu_fixtures: Path, tmp_path: Path, generation: str, pci: str, busy: int) -> None:
    text = (gpu_fixtures / "wandb" / f"rocm-smi-a-json_mi250_{generation}.json").read_text()
    gpu = discover(str(tmp_path), text).gpus[0]
    assert (gpu.model, gpu.pci, gpu.device_id) == ("MI250", pci, "0x740c")
    assert (gpu.memory_mib, gpu.memory_from) == (65536, "table")  # one die of the two
    assert gpu.telemetry.utilisation_percent == busy
    assert gpu.telemetry.power_limit_w == 560
    assert gpu.target == ("gfx90a" if generation == "rocm6" else "")


STATIC = {
    "asic": {
        "market_name": "AMD Instinct MI350X", "device_id": "0x75a0", "asic_serial": "0xABCD", "num_compute_units": 256,
        "target_graphics_version": "gfx950",
    },
    "bus": {"bdf": "0000:05:00.0"},
    "partition": {"accelerator_partition": "SPX", "memory_partition": "NPS1", "partition_id": 0},
    "numa": {"node": 0, "affinity": 0},
    "vram": {"type": "HBM3", "size": {"value": 294896, "unit": "MB"}},
    "limit": {"ppt0": {"max_power_limit": {"value": 1000, "unit": "W"}}, "ppt1": {"max_power_limit": "N/A"}},
}  # fmt: skip
METRIC = {
    "usage": {
        "gfx_activity": {"value": 41, "unit": "%"},
        "umc_activity": {"value": 7, "unit": "%"},
        "mm_activity": "N/A",
    },
    "power": {"socket_power": {"value": 140, "unit": "W"}, "gfx_voltage": "N/A"},
    "temperature": {"edge": "N/A", "hotspot": {"value": 37, "unit": "C"}, "mem": {"value": 42, "unit": "C"}},
    "mem_usage": {"total_vram": {"value": 288, "unit": "GB"}, "used_vram": {"value": 283, "unit": "MB"}},
    "ecc": {"total_correctable_count": 5, "total_uncorrectable_count": 0},
}


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"gpu_data": rows}], ids=["list", "gpu_data"])
def test_amd_smi_static_and_metric_in_one_file(tmp_path: Path, wrap: Any) -> None:
    found = told(tmp_path, wrap([{"gpu": 0, **STATIC}]), wrap([{"gpu": 0, **METRIC}]))
    gpu = found.gpus[0]
    assert (gpu.model, gpu.target, gpu.compute_units, gpu.memory_mib) == ("MI350X", "gfx950", 256, 294_896)
    assert (gpu.pci, gpu.numa, gpu.serial) == ("0000:05:00.0", 0, "0xabcd")
    assert (gpu.compute_mode, gpu.memory_mode, gpu.memory_modes) == ("SPX", "NPS1", ("NPS1", "NPS2"))
    seen = gpu.telemetry
    assert (seen.utilisation_percent, seen.memory_busy_percent, seen.memory_used_mib) == (41, 7, 283)
    assert (seen.temperature_c, seen.memory_temperature_c, seen.power_w, seen.power_limit_w) == (37, 42, 140, 1000)
    assert (gpu.errors.corrected, gpu.errors.uncorrected) == (5, 0)


def test_the_first_amd_smi_wrote_plain_numbers(tmp_path: Path) -> None:
    row = {
        "gpu": 0, "bus": {"bdf": "0000:0B:00.0"}, "vram": {"vram_type": "HBM3", "vram_size_mb": 196592},
        "asic": {"market_name": "MI300X-O", "device_id": "0x74a1", "target_graphics_version": "GFX942"},
        "usage": {"gfx_usage": "12 %"}, "power": {"average_socket_power": "91 W"}, "limit": {"max_power": 550},
    }  # fmt: skip
    gpu = told(tmp_path, [row]).gpus[0]
    assert (gpu.model, gpu.memory_mib, gpu.pci) == ("MI300X", 196_592, "0000:0b:00.0")
    assert (gpu.telemetry.utilisation_percent, gpu.telemetry.power_w, gpu.telemetry.power_limit_w) == (12, 91, 550)


@pytest.mark.parametrize("has_files", [False, True])
def test_memory_that_no_such_chip_has_is_not_believed_of_the_tool(tmp_path: Path, has_files: bool) -> None:
    if has_files:
        write_box(tmp_path, Box(gpus=1, has_sysfs=False, has_banks=False))
    asic = {"market_name": "AMD Instinct MI300X", "device_id": "0x74a1"}
    row = {"gpu": 0, "bdf": address(0), "asic": asic, "vram": {"size": {"value": 19659, "unit": "MB"}}}
    (gpu,) = told(tmp_path, [row]).gpus
    assert (gpu.health, gpu.memory_mib, gpu.memory_from) == ("degraded", 196_608, "table")
    assert gpu.reason == "the tool says 19659 MiB, which is implausible for an MI300X"
    row["vram"] = {"size": "196592 MB"}
    (gpu,) = told(tmp_path, [row]).gpus
    assert (gpu.health, gpu.memory_mib, gpu.memory_from) == ("healthy", 196_592, "driver")


@pytest.mark.parametrize("has_files", [False, True])
def test_a_mode_that_no_such_chip_can_be_in_is_not_healthy(tmp_path: Path, has_files: bool) -> None:
    if has_files:
        write_box(tmp_path, Box(gpus=1, has_sysfs=False))
    asic = {"market_name": "AMD Instinct MI300X", "device_id": "0x74a1"}
    row = {"gpu": 0, "bdf": address(0), "asic": asic, "vram": {"size": "196592 MB"}}
    for memory, health in (("NPS4", "degraded"), ("NPS1", "healthy")):
        modes = {"partition": {"compute_partition": "SPX", "memory_partition": memory}}
        (gpu,) = told(tmp_path, [row | modes]).gpus
        assert (gpu.compute_mode, gpu.memory_mode, gpu.health) == ("SPX", memory, health)
        assert gpu.reason == ("it reports SPX with NPS4, which an MI300X does not support" * (memory == "NPS4"))


@pytest.mark.parametrize(
    "rows",
    [
        [{"gpu": 0, "bus": {"bdf": "N/A"}, "vram": "N/A", "asic": "N/A", "partition": "N/A"}],
        [{"gpu": 0, "bus": None, "vram": None}],
        {"card0": {"PCI Bus": "N/A"}, "card1": None, "system": []},
    ],
)
def test_a_tool_that_has_nothing_to_say_hides_nothing_that_the_files_show(tmp_path: Path, rows: Any) -> None:
    write_box(tmp_path, Box(gpus=3, has_sysfs=False))
    found = told(tmp_path, rows)
    assert found.gpus == discover(str(tmp_path)).gpus
    assert len(found.gpus) == 3
    assert any("lists device 0 without address" in note for note in found.notes)
    with pytest.raises(ConfigError, match="amd-smi static --json"):
        told(tmp_path, [])  # that is not a tool's answer about GPUs at all


def test_partitions_of_the_tool_are_joined_at_their_address(tmp_path: Path) -> None:
    rows = [{"gpu": n, "bdf": f"0000:05:00.{n}", "partition_id": n} for n in range(8)]
    rows += [{"gpu": 8 + n, "bdf": f"0000:26:00.{n}", "partition_id": n} for n in range(8)]
    asic = {
        "asic": {"market_name": "AMD Instinct MI300X", "device_id": "0x74a1"},
        "vram": {"size": {"value": 196592, "unit": "MB"}},
    }
    found = told(tmp_path, rows, [{"gpu": 0, **asic}, {"gpu": 8, **asic}])
    assert [(gpu.pci, len(gpu.partitions)) for gpu in found.gpus] == [("0000:05:00.0", 8), ("0000:26:00.0", 8)]
    assert {part.memory_mib for part in found.gpus[0].partitions} == {24_574}
    assert [part.index for part in found.gpus[1].partitions] == list(range(8))


def test_compute_units_that_the_tool_does_not_tell_are_those_of_the_chip(tmp_path: Path) -> None:
    """rocm-smi tells none; of the second half of a GPU it tells little else, either."""
    first = {"Device Name": "AMD Instinct MI300X", "Device ID": "0x74a1", "VRAM Total Memory (B)": str(192 << 30)}
    second = {"Device Name": "AMD Instinct MI300X", "Device ID": "N/A", "VRAM Total Memory (B)": str(96 << 30)}
    modes = {"Compute Partition": "DPX", "Memory Partition": "NPS1"}
    cut = {"card0": first | modes | {"PCI Bus": "0000:05:00.0"}, "card1": second | {"PCI Bus": "0000:05:00.1"}}
    (gpu,) = discover(str(tmp_path), json.dumps(cut)).gpus
    assert (gpu.compute_units, gpu.memory_mib) == (304, 192 << 10)
    assert [(part.compute_units, part.memory_mib) for part in gpu.partitions] == [(152, 96 << 10)] * 2
    (whole,) = discover(str(tmp_path), json.dumps({"card0": first | {"PCI Bus": "0000:05:00.0"}})).gpus
    assert (whole.compute_units, whole.partitions) == (304, ())


@pytest.mark.parametrize(("mode", "count", "mib"), [("CPX", 8, 24_574), ("QPX", 4, 49_148), ("DPX", 2, 98_296)])
@pytest.mark.parametrize("teller", ["every row", "the first row", "every row, one lost", "the whole in every row"])
def test_a_cut_gpu_has_all_its_memory_however_the_tool_tells_it(
    tmp_path: Path, mode: str, count: int, mib: int, teller: str
) -> None:
    whole, asic = mib * count, {"market_name": "AMD Instinct MI300X", "device_id": "0x74a1", "num_compute_units": 38}
    size = whole if teller == "the whole in every row" else mib
    partition = {"accelerator_partition": mode, "memory_partition": "NPS1"}
    rows = []
    for n in range(count - (teller == "every row, one lost" and count > 2)):
        is_told = n == 0 or teller != "the first row"
        vram = {"size": {"value": size, "unit": "MB"}} if is_told else "N/A"
        row = {"gpu": n, "bdf": f"0000:05:00.{n}", "partition_id": n, "asic": asic if is_told else "N/A", "vram": vram}
        rows.append(row | {"partition": partition})
    (gpu,) = told(tmp_path, rows).gpus
    assert (gpu.model, gpu.memory_mib, gpu.health) == ("MI300X", whole, "healthy")
    assert {(part.memory_mib, part.compute_units) for part in gpu.partitions} == {(mib, 38)}


def test_amd_smi_partition_with_its_blank_rows_and_its_legend(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=2, has_sysfs=False))
    profile = {"gpu_id": 0, "memory_partition_caps": "NPS1", "accelerator_type": "SPX*", "num_partitions": 1}
    blank = {
        "gpu_id": "",
        "memory_partition_caps": "",
        "accelerator_type": "",
        "num_partitions": "",
        "resource_type": "DMA",
    }
    answer = {
        "current_partition": [{"gpu_id": 0, "memory": "NPS1", "accelerator_type": "SPX", "partition_id": "0"}],
        "memory_partition": [{"gpu_id": 0, "memory_partition_caps": "NPS1,NPS4", "current_memory_partition": "NPS1"}],
        "partition_profiles": [profile, blank, {**blank, "accelerator_type": "CPX", "num_partitions": 8}],
    }
    text = "*** WARNING: run me as root ***\n" + json.dumps(answer) + "\n\nLegend:\n  * = Current mode"
    first, second = discover(str(tmp_path), text).gpus
    assert (first.compute_mode, first.memory_mode) == ("SPX", "NPS1")
    assert (first.compute_modes, first.memory_modes) == (("SPX", "CPX"), ("NPS1", "NPS4"))
    assert second.memory_mode == ""


def test_links_of_the_tool_fill_in_where_files_have_none(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=2, has_links=False))
    link = {"gpu": 1, "weight": 15, "link_status": "ENABLED", "link_type": "XGMI", "num_hops": 1}
    rows = [
        {"gpu": 0, "bdf": address(0), "links": [{**link, "gpu": 0, "link_type": "SELF"}, link]},
        {"gpu": 1, "bdf": address(1)},
    ]
    found = discover(str(tmp_path), json.dumps(rows))
    assert [(link.to, link.kind, link.weight, link.hops) for link in found.gpus[0].links] == [
        (address(1), "xgmi", 15, 1)
    ]


def test_files_win_and_the_tool_fills_the_gaps(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=2, has_sysfs=False, has_banks=False))
    row = {
        **STATIC, "gpu": 0, "bus": {"bdf": address(1)}, "numa": {"node": 7}, "vram": {"size": "196592 MB"},
        "asic": {"num_compute_units": 1, "device_id": "0x1", "market_name": "AMD Instinct MI300X"},
    }  # fmt: skip
    before = discover(str(tmp_path)).gpus[1]
    assert (before.memory_mib, before.memory_from) == (196_608, "table")
    after = discover(
        str(tmp_path), json.dumps([row, {"gpu": 1, "bdf": "0000:f1:00.0", "asic": {"market_name": "MI300X"}}])
    )
    gpu = after.gpus[1]
    assert (gpu.memory_mib, gpu.memory_from, gpu.memory_mode) == (196_592, "driver", "NPS1")
    assert (gpu.compute_units, gpu.device_id, gpu.numa) == (304, "0x74a1", 1)  # the files had said so
    assert after.gpus[0] == discover(str(tmp_path)).gpus[0]
    assert [gpu.pci for gpu in after.gpus] == [address(0), address(1), "0000:f1:00.0"]
    assert after.notes == ("0000:f1:00.0 is listed by the tool but not in sysfs",)


def test_a_gap_that_is_filled_heals_the_gpu(tmp_path: Path) -> None:
    write_box(tmp_path, Box("MI210", 1, has_sysfs=False, has_banks=False))
    properties = tmp_path / "sys/class/kfd/kfd/topology/nodes/2/properties"
    properties.write_text(properties.read_text().replace(f"device_id {0x740F}", "device_id 4660"))
    properties.write_text(properties.read_text().replace("gfx_target_version 90010", "gfx_target_version 130000"))
    assert discover(str(tmp_path)).gpus[0].reason == "its memory size is unknown"
    rows = [
        {
            "gpu": 0,
            "bdf": address(0),
            "vram": {"size": {"value": 32, "unit": "GB"}},
            "asic": {"market_name": "AMD Radeon X"},
        }
    ]
    gpu = discover(str(tmp_path), json.dumps(rows)).gpus[0]
    assert (gpu.health, gpu.reason, gpu.memory_mib, gpu.model) == ("healthy", "", 32_768, "Radeon-X")


def test_uncorrectable_errors_of_the_tool_fail_a_gpu(tmp_path: Path) -> None:
    gpu = told(tmp_path, [{"gpu": 0, **STATIC, "ecc": {"total_uncorrectable_count": 2}}]).gpus[0]
    assert (gpu.health, gpu.reason) == ("failed", "the hardware counted 2 uncorrectable errors")


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", "{}", "[1, 2]", '{"card0": 5}', '[{"gpu": "N/A"}]', "[" * 100_000]
)
def test_what_names_no_gpu_is_refused_with_the_way_out(tmp_path: Path, text: str) -> None:
    if not text:
        assert discover(str(tmp_path), text).gpus == ()
        return
    with pytest.raises(ConfigError, match="amd-smi static --json"):
        discover(str(tmp_path), text)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["N/A", "", "x", "-1", "0x", "1e9 W"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def leaf_paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    inner = [found for key, value in items for found in leaf_paths(value, (*path, key))]
    return [path, *inner] if path else inner


@given(st.data())
def test_anything_may_stand_anywhere_in_the_answer(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    link = {"gpu": 1, "weight": 15, "link_type": "XGMI", "num_hops": 1}
    answer: list[Any] = [{"gpu": 0, **STATIC, **METRIC, "links": [link]}, {"gpu": 1, **STATIC}]
    answer += [{"card0": {"PCI Bus": "0000:05:00.0", "GPU use (%)": "3"}, "system": {"x": "y"}}]
    answer = json.loads(json.dumps(answer))
    for path in data.draw(st.lists(st.sampled_from(leaf_paths(answer)), max_size=4)):
        place = answer
        try:
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = data.draw(VALUES)
        except (KeyError, IndexError, TypeError):
            continue
    gpus, _ = read_smi("\n".join(json.dumps(document) for document in ([*answer[:2]], *answer[2:])))
    for gpu in gpus:
        assert all(value is None or isinstance(value, int) for value in gpu.telemetry.values())


def test_numbers_come_in_many_shapes() -> None:
    for value in (42, 42.0, "42", "42.0", " 42 W", "(42Mhz)", {"value": 42, "unit": "W"}, {"value": "42"}):
        assert number(value) == 42
    for value in (None, True, "N/A", "N/A (Secondary die)", {}, [], {"value": "N/A"}, float("nan"), "x42"):
        assert number(value) is None
    assert (mib("34342961152", "B"), mib({"value": 192, "unit": "GB"}), mib(65520), mib("1 TiB")) == (
        32752, 196_608, 65_520, 1 << 20,
    )  # fmt: skip
    assert mib("5 apples") is None
    assert (whole("0x74A1"), whole(250, 0, 200), whole("-1")) == (0x74A1, None, None)


def test_documents_are_found_between_words() -> None:
    assert json_documents('WARNING [x] {"a": 1}\n[2] Legend: {') == [{"a": 1}, [2]]


def test_the_tool_is_asked_when_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi_tools, "ROCM_TOOLS", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert smi_tools.run_smi() == ([], [])
    tool = tmp_path / "amd-smi"
    tool.write_text(f"#!/bin/sh\necho '{json.dumps([{'gpu': 0, **STATIC}])}'\n")
    tool.chmod(0o755)
    found, odd = smi_tools.run_smi()
    assert (found[0].pci, odd) == ("0000:05:00.0", [])
    tool.write_text("#!/nowhere/sh\n")
    assert smi_tools.run_smi() == ([], ["amd-smi did not answer (FileNotFoundError)"])


def test_names_of_instruction_sets_and_products() -> None:
    for version, name in (
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (100301, "gfx1031"),
        (90500, "gfx950"),
        (110501, "gfx1151"),
    ):
        assert target_name(version) == name
        assert parse_target(name) == version
    assert (parse_target("gfx9010"), parse_target("gfx9402"), parse_target("N/A"), target_name(0)) == (
        90010,
        90402,
        0,
        "",
    )
    assert short_product("Navi 22 [Radeon RX 6700/6700 XT / 6800M]") == "Radeon-RX-6700"
    assert short_product("Raphael") == "AMD-Raphael"
    assert amd_model(0, "", 90402, 255 * 1024, 304) == "MI325X"
    assert amd_model(0x740C, "", 90010, 0, 104) == "MI250"
    assert amd_model(0, "", 0, 0, 0) == "AMD"


def test_a_device_of_which_the_tool_says_nothing_is_noted(tmp_path: Path) -> None:
    known = {"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X"}, "bus": {"bdf": "0000:05:00.0"}}
    silent = {"gpu": 1, "asic": "N/A", "vram": {"size": "N/A"}, "bus": {"bdf": "N/A"}}
    found = told(tmp_path, [known, silent])
    assert len(found.gpus) == 1
    assert any("lists device 1 without address" in note for note in found.notes)
