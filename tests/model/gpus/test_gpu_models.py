"""A model of GPUs is one row of the table: everything else that knows models follows from it."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kaiwo.devices.gpu_names import VIRTUAL_FUNCTIONS, amd_model, nominal_mib, nvidia_model
from kaiwo.model.gpus import gpu_models
from kaiwo.model.gpus.gpu_models import GPU_MODELS, MODEL_TABLE, GpuModel
from kaiwo.model.gpus.partition_modes import legal_modes, partition_shape

every_model = pytest.mark.parametrize("model", MODEL_TABLE, ids=[model.name for model in MODEL_TABLE])
NEW_ROWS = """
    GpuModel("MI999X", "amd", 512, (0x7FF0,), (0x7FF1,), 99900, chip=Chip(8, 320, 4, ("NPS1", "NPS4"))),
    GpuModel("R300", "nvidia", 400),
"""
CHECKS = """
from click.testing import CliRunner
from kaiwo.cli.verbs.start.up import up
from kaiwo.clusters.kubernetes.decode.node_decoder import find_model
from kaiwo.clusters.local.cluster_file import gpus_of
from kaiwo.devices.gpu_names import VIRTUAL_FUNCTIONS, amd_model, nominal_mib, nvidia_model
from kaiwo.gpus.isolation_grades import share_grade, smallest_masked_milli
from kaiwo.manifests import parse
from kaiwo.model.gpus.gpu import Gpu, vendor_of
from kaiwo.model.gpus.partition_modes import partition_shape

# Requests and manifests.
((workload, _),) = parse({"name": "a", "gpus": 1, "gpuModels": ["AMD Instinct mi999x"]}).submissions
assert workload.roles[0].request.gpu_models == ("MI999X",)
assert "MI999X" in CliRunner().invoke(up, ["--help"]).output
# Discovery.
assert amd_model(0x7FF0, "", 0, 0, 0) == amd_model(0x7FF1, "", 0, 0, 0) == "MI999X"
assert amd_model(0, "", 99900, 500_000, 0) == "MI999X"
assert 0x7FF1 in VIRTUAL_FUNCTIONS and 0x7FF0 not in VIRTUAL_FUNCTIONS
assert nvidia_model("NVIDIA R300 400GB") == "R300" and nominal_mib("R300") == 400 << 10
assert find_model("AMD_Instinct_MI999X_OAM") == "MI999X"
# Partitions and shares.
assert partition_shape("MI999X", "CPX", "NPS4").memory_mib == 64 << 10
assert smallest_masked_milli("MI999X") == 25
assert vendor_of(Gpu("g", "R300", 1)) == "nvidia" and share_grade(Gpu("g", "R300", 1), {}) == "mps"
"""


def test_a_new_model_is_one_row(tmp_path: Path) -> None:
    source = Path(gpu_models.__file__).read_text()
    first = "MODEL_TABLE = ("
    assert source.count(first) == 1
    (tmp_path / "gpu_models.py").write_text(source.replace(first, first + NEW_ROWS))
    load = f"""
import importlib.util, sys
import kaiwo.model.gpus
spec = importlib.util.spec_from_file_location("kaiwo.model.gpus.gpu_models", {str(tmp_path / "gpu_models.py")!r})
sys.modules[spec.name] = kaiwo.model.gpus.gpu_models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kaiwo.model.gpus.gpu_models)
"""
    done = subprocess.run([sys.executable, "-c", load + CHECKS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_name_or_row_is_there_twice() -> None:
    assert max(Counter(model.name for model in MODEL_TABLE).values()) == 1
    assert {model.vendor for model in MODEL_TABLE} == {"amd", "nvidia"}
    assert len(VIRTUAL_FUNCTIONS) == sum(len(model.virtual_ids) for model in MODEL_TABLE)


@every_model
def test_discovery_names_it_by_each_of_its_pci_ids(model: GpuModel) -> None:
    units = model.device_units or 1
    assert {amd_model(pci_id, "", 0, 0, units) for pci_id in model.all_pci_ids} <= {model.name}
    assert not VIRTUAL_FUNCTIONS.intersection(model.pci_ids)
    assert nominal_mib(model.name) == model.memory_mib // model.pci_devices
    if model.vendor == "nvidia":
        assert nvidia_model(f"NVIDIA {model.name} PCIe") == model.name


@every_model
def test_it_has_modes_exactly_if_it_has_several_dies(model: GpuModel) -> None:
    assert bool(legal_modes(model.name)) == (model.chip is not None)
    if model.chip is not None:
        whole = partition_shape(model.name, "SPX")
        assert whole is not None
        assert whole.memory_mib == model.memory_mib


def test_a_legacy_model_is_named_by_discovery_and_by_nothing_else() -> None:
    legacy = {model.name for model in MODEL_TABLE if model.is_legacy}
    assert legacy == {"MI25", "MI50", "MI100", "MI250", "Radeon-Pro-WX-9100"}
    assert not legacy & GPU_MODELS.keys()
