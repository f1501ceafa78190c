"""`kaiwo discover` on machines made of files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.cli.conftest import Type
from tests.devices.amd_trees import Box, address, write_box


def test_a_gpu_is_a_row(kaiwo: Type, tmp_path: Path) -> None:
    write_box(tmp_path / "node-7", Box(gpus=2, compute="CPX", memory="NPS4", lost={(1, 7)}))
    done = kaiwo("discover", "--root", str(tmp_path / "node-7"))
    assert done.code == 0
    title, header, first, second = done.lines()
    assert title == "node-7 has 2 GPUs (MI300X) in 15 partitions"
    assert header.split() == [
        "GPU",
        "MODEL",
        "MEMORY",
        "CUS",
        "MODE",
        "PARTS",
        "NUMA",
        "LINKS",
        "BUSY",
        "USED",
        "HEALTH",
    ]
    assert first.split() == [
        address(0),
        "MI300X",
        "192",
        "GiB",
        "304",
        "CPX+NPS4",
        "8",
        "0",
        "1",
        "xgmi",
        "37%",
        "297",
        "MiB",
        "healthy",
    ]
    assert second.split()[6] == "7"
    assert done.err == f"note: {address(1)}: 7 of 8 partitions are present; missing: 7\n"


def test_wide_shows_the_partitions_too(kaiwo: Type, tmp_path: Path) -> None:
    lines = kaiwo("discover", "--root", str(write_box(tmp_path, Box(gpus=1, compute="QPX"))), "-o", "wide").lines()
    assert len(lines) == 2 + 1 + 4
    assert lines[4].split()[:4] == [f"{address(0)}-p1", "48", "GiB", "76"]
    assert "amdgpu_xcp_0" in lines[4]


def test_json_has_a_gpu_for_each_physical_one(kaiwo: Type, tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=2, compute="CPX", has_sysfs=False))
    data = kaiwo("discover", "--root", str(tmp_path), "-o", "json").json
    assert [len(gpu["partitions"]) for gpu in data["gpus"]] == [8, 8]
    assert data["gpus"][0]["partitions"][3]["compute_units"] == 38
    write_box(tmp_path / "whole", Box(gpus=1, has_sysfs=False))
    data = kaiwo("discover", "--root", str(tmp_path / "whole"), "-o", "json").json
    assert data["gpus"][0]["partitions"] == []
    as_yaml = kaiwo("discover", "--root", str(tmp_path / "whole"), "-o", "yaml").out
    assert yaml.safe_load(as_yaml) == data


def test_the_tools_answer_can_be_given(kaiwo: Type, tmp_path: Path) -> None:
    answer = tmp_path / "smi.json"
    answer.write_text(json.dumps({"card0": {"PCI Bus": "0000:05:00.0", "Card Series": "AMD Instinct MI300X OAM"}}))
    empty = tmp_path / "empty"
    empty.mkdir()
    done = kaiwo("discover", "--root", str(empty), "--amd-smi-json", str(answer))
    assert (done.code, done.lines()[0]) == (0, "empty has 1 GPU (MI300X)")


def test_a_degraded_gpu_says_why(kaiwo: Type, tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=2, has_sysfs=False))
    (tmp_path / "sys/class/kfd/kfd/topology/nodes/3/properties").unlink()
    done = kaiwo("discover", "--root", str(tmp_path))
    assert done.code == 0
    assert done.lines()[0].endswith("has 2 GPUs (MI300X, AMD); 1 not healthy")
    assert "degraded  properties: no such file or directory" in done.lines()[-1]


def test_nothing_found_says_where_and_what_next(kaiwo: Type, tmp_path: Path) -> None:
    done = kaiwo("discover", "--root", str(tmp_path))
    assert done.code == 0
    assert done.lines()[0] == f"no GPU found under {tmp_path}; looked for"
    assert f"{tmp_path}/sys/class/kfd/kfd/topology/nodes" in done.out
    assert "copy /sys/class/kfd/kfd/topology" in done.out
    as_json = kaiwo("discover", "--root", str(tmp_path), "-o", "json")
    assert as_json.json["gpus"] == []
    assert "no GPU found" in as_json.err
    write_box(tmp_path / "node-3", Box(gpus=1, has_sysfs=False))
    assert f"kaiwo discover --root {tmp_path}/node-3" in kaiwo("discover", "--root", str(tmp_path)).out


def test_wrong_input_is_refused(kaiwo: Type, tmp_path: Path) -> None:
    assert kaiwo("discover", "--root", str(tmp_path / "missing")).code == 2
    assert kaiwo("discover", "--amd-smi-json", str(tmp_path / "missing")).code == 2
    (tmp_path / "junk").write_text("junk")
    done = kaiwo("discover", "--amd-smi-json", str(tmp_path / "junk"))
    assert done.code == 2
    assert "amd-smi static --json" in done.err


def test_it_needs_neither_numpy_nor_a_server(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1, has_sysfs=False))
    code = (
        "import sys; from kaiwo.cli.main import main; "
        f"main(['discover', '--root', {str(tmp_path)!r}, '-o', 'json']); "
        "heavy = ('numpy', 'asyncio', 'aiohttp', 'subprocess'); "
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    env = {"PATH": os.environ["PATH"], "KAIWO_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stderr.strip() == "[]"
