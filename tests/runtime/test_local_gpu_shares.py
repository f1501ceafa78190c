"""This machine's shares: the isolation that was asked for is what a run gets, or the reason why it does not begin."""

from pathlib import Path

import pytest

from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sharing import current_inventory
from kaiwo.devices.sharing.current_inventory import GENERATION
from kaiwo.devices.sharing.share_types import IsolationSupport
from kaiwo.gpus.isolation_grades import grade_of
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.request import Request
from kaiwo.runtime.nodes.local_gpu_shares import LocalGpuShares
from kaiwo.runtime.nodes.local_node import node_of
from tests.devices.amd_trees import Box, address, rebuild, uuid, write_box

HALF = (Share(address(0), 500, 98_304),)


@pytest.fixture
def shares(tmp_path: Path) -> LocalGpuShares:
    root = write_box(tmp_path / "tree", Box(gpus=1))
    return LocalGpuShares(tmp_path / "sharing", lambda: discover(str(root), has_telemetry=False))


def test_the_grade_of_a_run_is_known_until_it_is_over(shares: LocalGpuShares) -> None:
    assert shares.grade_of("run") == ""
    kept = shares.prepare("run", HALF)
    assert "HSA_CU_MASK" in kept.env
    assert shares.grade_of("run") == "cu-mask"
    shares.release("run")
    assert shares.grade_of("run") == ""


def test_a_method_that_was_named_is_taken(shares: LocalGpuShares) -> None:
    kept = shares.prepare("run", HALF, "time-slicing")
    assert "HSA_CU_MASK" not in kept.env
    assert shares.grade_of("run") == "time-slicing"


@pytest.mark.parametrize(("isolation", "least"), [("mps", ""), ("", "memory-capped"), ("time-slicing", "cu-mask")])
def test_what_cannot_be_had_is_the_reason(shares: LocalGpuShares, isolation: str, least: str) -> None:
    with pytest.raises(OSError, match=r"have no MPS|but (memory-capped|cu-mask) is required"):
        shares.prepare("run", HALF, isolation, least)


def test_a_node_tells_the_grade_that_its_machine_has(tmp_path: Path) -> None:
    found = discover(str(write_box(tmp_path, Box(gpus=2))), has_telemetry=False)
    regions = tuple(f"drm/{address(gpu)}/vram" for gpu in range(2))
    for platform, grade in ((IsolationSupport(), "cu-mask"), (IsolationSupport(dmem_regions=regions), "memory-capped")):
        node = node_of(found, platform)
        assert node is not None
        assert {gpu.share_grade for gpu in node.gpus} == {grade}
        assert grade_of(Request(gpus=1, gpu_milli=500), node.gpus[0], node.labels) == grade


class Machine:
    """A machine whose driver can make its devices anew, and the shares of it."""

    def __init__(self, folder: Path, box: Box) -> None:
        self.root, self.looks, self.generation = folder / "tree", 0, 0
        self.change(box)
        self.shares = LocalGpuShares(folder / "sharing", self.look, str(self.root))

    def change(self, box: Box) -> None:
        self.generation += 1
        rebuild(self.root, box, self.generation)

    def look(self) -> Inventory:
        self.looks += 1
        return discover(str(self.root), has_telemetry=False)

    def devices(self, run: str, *ids: str) -> str:
        kept = self.shares.prepare(run, [Share(id, 1000, 196_608) for id in ids])
        return kept.env["ROCR_VISIBLE_DEVICES"]


def test_a_gpu_that_is_lost_does_not_send_others_to_their_neighbours(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Box(gpus=3, compute="DPX"))
    part = f"{address(1)}-p0"
    assert machine.devices("before", part) == "2"
    machine.change(Box(gpus=3, compute="DPX", lost={(0, 1)}))
    assert machine.devices("after", part) == "1"
    assert machine.devices("before", part) == "1"  # begun anew, it gets the number of today


def test_a_whole_gpu_is_named_so_that_it_stays_the_same(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Box(gpus=3))
    assert machine.devices("run", address(2), address(1)) == f"{uuid(1)},{uuid(2)}"


def test_work_starts_on_partitions_that_were_made_for_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Box(gpus=2))
    assert machine.devices("whole", address(0)) == uuid(0)
    machine.shares.release("whole")
    machine.change(Box(gpus=2, compute="CPX"))
    assert machine.devices("part", f"{address(1)}-p3") == "11"
    with pytest.raises(OSError, match=f"this machine has no device {address(0)};"):
        machine.devices("whole", address(0))


def test_the_machine_is_looked_at_when_it_may_have_changed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Box(gpus=2))
    for run in "abc":
        machine.devices(run, address(0))
    assert machine.looks == 1
    machine.change(Box(gpus=2))
    machine.devices("d", address(0))
    machine.devices("e", address(0))
    assert machine.looks == 2
    (machine.root / GENERATION).unlink()  # nobody counts: only a look can tell
    machine.devices("f", address(0))
    machine.devices("g", address(0))
    assert machine.looks == 4


def test_nothing_is_given_while_the_devices_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_inventory, "MAX_WAIT_S", 0.2)
    machine = Machine(tmp_path, Box(gpus=2))
    calm = machine.look

    def look() -> Inventory:
        found = calm()
        machine.change(Box(gpus=2))
        return found

    restless = LocalGpuShares(tmp_path / "other", look, str(machine.root))
    with pytest.raises(OSError, match="are being reconfigured"):
        restless.prepare("run", [Share(address(0), 1000, 196_608)])


def test_the_first_name_is_that_of_the_first_device_that_a_process_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Box(gpus=2, compute="CPX"))
    late, early = f"{address(1)}-p0", f"{address(0)}-p4"
    kept = machine.shares.prepare("run", [Share(late, 125, 24_576), Share(early, 125, 24_576)])
    assert kept.env["ROCR_VISIBLE_DEVICES"] == "4,8"
    assert kept.env["KAIWO_GPUS"] == f"{early},{late}"
