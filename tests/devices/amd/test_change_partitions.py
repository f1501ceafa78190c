"""A change of partition modes happens whole or not at all, whatever the kernel answers and whenever we are killed."""

from pathlib import Path

import pytest

from kaiwo.devices.amd.change_partitions import PartitionSite, change_partitions, current_gpus, resume
from kaiwo.devices.amd.partition_mode_writers import ModeWriter, SmiModeWriter, SysfsModeWriter
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.partition_modes import Mode, ModeChange, legal_modes
from tests.devices.amd.fake_amdgpu_driver import Kernel
from tests.devices.amd_trees import Box, address, write_box

SPX, CPX, CPX4 = Mode("SPX", "NPS1"), Mode("CPX", "NPS1"), Mode("CPX", "NPS4")


def site_of(kernel: Kernel, way: ModeWriter | None = None, **changes: object) -> PartitionSite:
    chosen = way or SysfsModeWriter(str(kernel.root), kernel.write, kernel.run)
    return PartitionSite(chosen, str(kernel.root / "state" / "partitioning.json"), str(kernel.root), **changes)  # type: ignore[arg-type]


def changes_to(kernel: Kernel, after: Mode, gpus: range | None = None) -> list[ModeChange]:
    chosen = range(len(kernel.compute)) if gpus is None else gpus
    return [ModeChange(address(gpu), kernel.modes[gpu], after) for gpu in chosen]


def is_at_rest(kernel: Kernel) -> bool:
    """Nothing is under way any more."""
    return not (kernel.root / "state" / "partitioning.json").exists() and kernel.is_loaded


def test_an_idle_gpu_is_cut_and_the_others_stay_whole(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    done = change_partitions(site_of(kernel), changes_to(kernel, CPX, range(2, 4)))
    assert (done.status, done.devices, done.missing) == ("done", 6 + 16, 0)
    assert kernel.compute == ["SPX", "SPX", "CPX", "CPX", "SPX", "SPX", "SPX", "SPX"]
    assert is_at_rest(kernel)


def test_a_memory_mode_changes_with_a_driver_reload_and_then_the_compute_modes(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    done = change_partitions(site_of(kernel), changes_to(kernel, CPX4))
    assert (done.status, done.devices) == ("done", 64)
    assert kernel.modes == [CPX4] * 8
    assert kernel.writes.index("modprobe amdgpu") == 9  # eight requests, the removal, the load
    assert kernel.writes[10:] == [f"current_compute_partition {gpu} CPX" for gpu in range(8)]  # it came up in QPX


def test_amd_smi_does_the_same(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, gpus=2)
    way = SmiModeWriter(run=kernel.run)
    assert change_partitions(site_of(kernel, way), changes_to(kernel, CPX4)).status == "done"
    assert kernel.modes == [CPX4] * 2
    words = change_partitions(site_of(kernel, way), changes_to(kernel, CPX), is_dry=True).actions
    assert words[0] == f"run amd-smi set --gpu {address(0)} --memory-partition NPS1"


@pytest.mark.parametrize("before", [["SPX"] * 4, ["CPX"] * 4, ["CPX", "QPX", "SPX", "SPX"]])
def test_amd_smi_changes_the_gpus_that_are_meant_though_each_change_renumbers_the_rest(
    tmp_path: Path, before: list[str]
) -> None:
    kernel = Kernel(tmp_path, gpus=4)
    kernel.compute = list(before)
    kernel.show()
    done = change_partitions(
        site_of(kernel, SmiModeWriter(run=kernel.run)), changes_to(kernel, Mode("DPX", "NPS1"), range(2))
    )
    assert done.status == "done"
    assert kernel.compute == ["DPX", "DPX", *before[2:]]
    assert len(kernel.writes) == 2


def test_real_files_are_written_as_sysfs_wants_it(tmp_path: Path) -> None:
    """A tree of plain files takes every write and shows no partitions: it is not believed, and taken back."""
    write_box(tmp_path, Box(gpus=1))
    site = PartitionSite(SysfsModeWriter(str(tmp_path)), str(tmp_path / "record"), str(tmp_path))
    outcome = change_partitions(site, [ModeChange(address(0), SPX, CPX)])
    assert outcome.status == "rolled-back"
    assert outcome.reason == f"{address(0)} shows SPX+NPS1 after CPX+NPS1 was set"
    file = tmp_path / "sys/bus/pci/devices" / address(0) / "current_compute_partition"
    assert file.read_text() == "SPX\n"  # three letters over three letters, and three again
    file.unlink()
    assert change_partitions(site, [ModeChange(address(0), SPX, CPX)]).status in ("rolled-back", "refused")
    assert not file.exists()  # what the driver does not offer is not made


def test_a_dry_run_says_everything_and_does_nothing(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    dry = change_partitions(site_of(kernel), changes_to(kernel, CPX4), is_dry=True)
    assert dry.status == "dry-run"
    assert dry.actions[0] == f"write NPS4 to {tmp_path}/sys/bus/pci/devices/{address(0)}/current_memory_partition"
    assert dry.actions[8] == "unload and load the amdgpu driver"
    assert dry.actions[-1] == "expect 64 devices on 8 GPUs"
    assert kernel.writes == []
    assert is_at_rest(kernel)


def test_a_gpu_with_a_tenant_is_never_touched(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    site = site_of(kernel, tenant=lambda gpu: "team/train-3" if gpu == address(5) else "")
    outcome = change_partitions(site, changes_to(kernel, CPX))
    assert (outcome.status, outcome.reason) == ("busy", f"{address(5)} is in use by team/train-3")
    assert kernel.writes == []


def test_the_kernel_says_busy_and_what_was_changed_already_goes_back(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.busy = {5}
    outcome = change_partitions(site_of(kernel), changes_to(kernel, CPX))
    assert outcome.status == "busy"
    assert "resource busy" in outcome.reason
    assert kernel.modes == [SPX] * 8
    assert is_at_rest(kernel)


def test_a_driver_in_use_is_not_reloaded(tmp_path: Path) -> None:
    """The noted memory mode cannot be taken back while the driver is in use: that is said, and done later."""
    kernel = Kernel(tmp_path)
    kernel.busy = {0}
    stuck = change_partitions(site_of(kernel), changes_to(kernel, CPX4))
    assert stuck.status == "stuck"
    assert "Module amdgpu is in use" in stuck.reason
    assert kernel.modes == [SPX] * 8
    kernel.busy = set()
    back = resume(site_of(kernel))
    assert back is not None
    assert back.status == "rolled-back"
    assert (kernel.modes, kernel.noted) == ([SPX] * 8, "NPS1")
    assert is_at_rest(kernel)


@pytest.mark.parametrize("after", [Mode("SPX", "NPS4"), Mode("TPX", "NPS1"), Mode("DPX", "NPS4"), Mode("CPX", "NPS8")])
def test_an_illegal_mode_is_refused_before_anything_is_written(tmp_path: Path, after: Mode) -> None:
    kernel = Kernel(tmp_path, gpus=1)
    outcome = change_partitions(site_of(kernel), changes_to(kernel, after))
    assert outcome.status == "refused"
    assert "cannot be" in outcome.reason
    assert kernel.writes == []


def test_orders_that_do_not_match_the_machine_are_refused(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, gpus=2)
    site = site_of(kernel)
    assert change_partitions(site, [ModeChange("0000:ff:00.0", SPX, CPX)]).reason == "there is no GPU 0000:ff:00.0"
    assert "is in SPX+NPS1, not in CPX+NPS1" in change_partitions(site, [ModeChange(address(0), CPX, SPX)]).reason
    assert "same memory mode" in change_partitions(site, changes_to(kernel, CPX4, range(1))).reason
    assert kernel.writes == []


def test_a_write_that_did_nothing_is_not_believed(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.deaf = {6}
    outcome = change_partitions(site_of(kernel), changes_to(kernel, CPX))
    assert outcome.status == "rolled-back"
    assert f"{address(6)} shows SPX+NPS1 after CPX+NPS1 was set" in outcome.reason
    assert kernel.modes == [SPX] * 8


def test_a_mode_that_only_the_drivers_file_took_is_put_back_there(tmp_path: Path) -> None:
    """Its topology never left the old mode, so that alone says that all is well."""
    kernel = Kernel(tmp_path, gpus=2, compute="QPX")
    kernel.halfway = {0}
    outcome = change_partitions(site_of(kernel), changes_to(kernel, CPX, range(1)))
    assert outcome.status == "rolled-back"
    assert kernel.writes == ["current_compute_partition 0 CPX", "current_compute_partition 0 QPX"]
    assert (current_gpus(str(tmp_path))[address(0)].health, is_at_rest(kernel)) == ("healthy", True)


def test_a_file_that_does_not_go_back_is_said(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, gpus=1, compute="QPX")
    kernel.halfway = {0}
    write = kernel.write

    def only_once(path: str, text: str) -> None:
        if not kernel.writes:
            write(path, text)

    outcome = change_partitions(
        site_of(kernel, SysfsModeWriter(str(tmp_path), only_once, kernel.run)), changes_to(kernel, CPX)
    )
    assert outcome.status == "stuck"
    assert outcome.reason.endswith(f"after rolling back: {address(0)} says CPX after QPX was set")
    back = resume(site_of(kernel))
    assert back is not None
    assert back.status == "rolled-back"
    assert kernel.modes == [Mode("QPX", "NPS1")]


def test_63_devices_are_a_real_node_and_48_are_not(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "63")
    kernel.lost = lambda gpu, part: (gpu, part) == (7, 7)
    done = change_partitions(site_of(kernel), changes_to(kernel, CPX))
    assert (done.status, done.devices, done.missing) == ("done", 63, 1)
    assert done.reason == "1 of the devices are missing"
    worse = Kernel(tmp_path / "48")
    worse.lost = lambda gpu, part: part > 5
    outcome = change_partitions(site_of(worse), changes_to(worse, CPX))
    assert outcome.status == "rolled-back"
    assert "16 devices are missing" in outcome.reason
    assert worse.modes == [SPX] * 8


def test_the_device_plugin_must_offer_what_the_machine_shows(tmp_path: Path) -> None:
    """ROCm/k8s-device-plugin#184: 64 were detected and the kubelet was told 0."""
    kernel = Kernel(tmp_path)
    offers = {"SPX": 8, "CPX": 0}
    site = site_of(kernel, plugin_devices=lambda: offers[kernel.compute[0]])
    outcome = change_partitions(site, changes_to(kernel, CPX))
    assert outcome.status == "rolled-back"
    assert outcome.reason == "the device plugin offers 0 devices, the machine shows 64"
    offers["CPX"] = 64
    assert change_partitions(site, changes_to(kernel, CPX)).status == "done"


class Killed(BaseException):
    """The process is gone, as by kill -9: nothing of ours runs any more."""


@pytest.mark.parametrize("after", [CPX, CPX4])
@pytest.mark.parametrize("is_failing", [False, True])
def test_killed_before_any_step_it_is_finished_or_put_back_later(tmp_path: Path, after: Mode, is_failing: bool) -> None:
    """Every place at which the machine can be told something, in the forward way and in the way back."""
    whole = Kernel(tmp_path / "whole", gpus=2)
    whole.deaf = {1} if is_failing else set()
    change_partitions(site_of(whole), changes_to(whole, after))
    assert len(whole.writes) >= 2
    for at in range(len(whole.writes)):
        kernel = Kernel(tmp_path / f"killed-{at}", gpus=2)
        kernel.deaf = set(whole.deaf)
        order = changes_to(kernel, after)

        def kill(what: str, kernel: Kernel = kernel, at: int = at) -> None:
            if len(kernel.writes) == at:
                raise Killed

        kernel.before_each = kill
        with pytest.raises(Killed):
            change_partitions(site_of(kernel), order)
        kernel.before_each = lambda what: None
        outcome = resume(site_of(kernel))
        assert outcome is not None, at
        assert outcome.status == ("rolled-back" if is_failing else "done"), (at, outcome)
        assert kernel.modes == ([SPX] * 2 if is_failing else [after] * 2), at
        assert is_at_rest(kernel), at
        assert resume(site_of(kernel)) is None


def test_an_unfinished_change_is_finished_before_the_next_begins(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, gpus=2)

    def kill(what: str) -> None:
        raise Killed

    kernel.before_each = kill
    with pytest.raises(Killed):
        change_partitions(site_of(kernel), changes_to(kernel, CPX))
    kernel.before_each = lambda what: None
    outcome = change_partitions(site_of(kernel), [ModeChange(address(0), CPX, SPX)])
    assert outcome.status == "done"
    assert kernel.compute == ["SPX", "CPX"]


def test_a_damaged_record_is_said_and_nothing_is_touched(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, gpus=1)
    (tmp_path / "state").mkdir()
    (tmp_path / "state/partitioning.json").write_text("{half")
    with pytest.raises(ConfigError, match="remove the file"):
        change_partitions(site_of(kernel), changes_to(kernel, CPX))
    assert kernel.writes == []


@pytest.mark.parametrize("model", ["MI300X", "MI325X", "MI308X", "MI350X"])
def test_every_legal_change_of_every_model_works_on_the_kernel(tmp_path: Path, model: str) -> None:
    for number, before in enumerate(legal_modes(model)):
        for after in legal_modes(model):
            kernel = Kernel(tmp_path / f"{number}-{'-'.join(after)}", 1, model, *before)
            assert [Mode(gpu.compute_mode, gpu.memory_mode) for gpu in current_gpus(str(kernel.root)).values()] == [
                before
            ]
            outcome = change_partitions(site_of(kernel), changes_to(kernel, after))
            assert outcome.status == "done", (before, after, outcome)
            assert kernel.modes == [after]
