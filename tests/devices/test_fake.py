"""Made-up machines look like real ones."""

import pytest

from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.model.gpus.partition_modes import legal_modes, partition_shape
from tests.devices.fake_inventory import fake_inventory


@pytest.mark.parametrize(("model", "mode"), [(model, mode) for model in CHIPS for mode in legal_modes(model)])
def test_every_legal_mode_can_be_made_up(model: str, mode: tuple[str, str]) -> None:
    found = fake_inventory(model, 4, mode)
    shape = partition_shape(model, *mode)
    assert shape is not None
    parts = [part for gpu in found.gpus for part in gpu.partitions]
    assert len(parts) == (4 * shape.count if shape.count > 1 else 0)
    assert [part.order for part in parts] == list(range(len(parts)))
    assert {(part.compute_units, part.memory_mib) for part in parts} <= {(shape.compute_units, shape.memory_mib)}
    assert [gpu.numa for gpu in found.gpus] == [0, 0, 1, 1]
    assert all(len(gpu.links) == 3 for gpu in found.gpus)


def test_some_may_be_ill() -> None:
    found = fake_inventory("H100", 2, ill={1: "fell off the bus"})
    assert [(gpu.health, gpu.reason) for gpu in found.gpus] == [("healthy", ""), ("failed", "fell off the bus")]
    assert found.gpus[0].links[0].kind == "nvlink"


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="no mode TPX\\+NPS1; choose from SPX\\+NPS1"):
        fake_inventory("MI300X", mode=("TPX", "NPS1"))
    with pytest.raises(ConfigError, match="'MI999' is not a known GPU model"):
        fake_inventory("MI999")


def test_hundreds_have_different_names() -> None:
    assert len({gpu.id for gpu in fake_inventory(count=500).gpus}) == 500
