"""The variables themselves."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.devices.sharing.grants import visible_variables
from kaiwo.devices.sharing.mps import client_variables, daemon_variables, percent
from kaiwo.devices.sharing.share_types import GpuDevice, GrantedDevice, devices_by_id
from tests.devices.fake_inventory import fake_inventory

FIRST = GpuDevice("a", "nvidia", 0, "GPU-aa")
THIRD = GpuDevice("c", "nvidia", 2, "GPU-cc")
AMD = [GpuDevice(f"amd-{order}", "amd", order) for order in range(4)]


def test_nvidia_devices_are_named_by_uuid_and_amd_ones_by_number() -> None:
    assert visible_variables([THIRD, FIRST], {"nvidia"}) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-cc",
    }
    assert visible_variables([AMD[3], AMD[1]], {"amd"}) == {"ROCR_VISIBLE_DEVICES": "1,3", "HIP_VISIBLE_DEVICES": "0,1"}


def test_a_whole_amd_gpu_is_named_by_its_own_number_where_that_means_one_device() -> None:
    fake = fake_inventory("MI300X", 2)
    for serials, names in (
        (("0x00000000deadbeef", "0x00000000deadbeee"), "GPU-00000000DEADBEEF,GPU-00000000DEADBEEE"),
        (("0x00000000deadbeef", "0x00000000deadbeef"), "0,1"),
        (("0x0000000000000000", "PCB071"), "0,1"),
    ):
        gpus = tuple(replace(gpu, vendor="amd", serial=serial) for gpu, serial in zip(fake.gpus, serials, strict=True))
        devices = list(devices_by_id(replace(fake, gpus=gpus)).values())
        assert visible_variables(devices, {"amd"})["ROCR_VISIBLE_DEVICES"] == names


def test_who_holds_nothing_of_a_vendor_sees_nothing_of_it() -> None:
    seen = visible_variables([FIRST], {"nvidia", "amd"})
    assert seen["CUDA_VISIBLE_DEVICES"] == "GPU-aa"
    assert (seen["ROCR_VISIBLE_DEVICES"], seen["HIP_VISIBLE_DEVICES"]) == ("-1", "-1")
    assert visible_variables([], {"fake"}) == {}


def test_an_mps_client_has_its_threads_and_its_memory() -> None:
    found = client_variables([GrantedDevice(FIRST, 300, 43_131)], "/run/mps")
    assert found == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps/pipe",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=43131M",
    }
    both = client_variables([GrantedDevice(FIRST, 500, 10), GrantedDevice(THIRD, 250, 20)], "/run/mps")
    assert both["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert both["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=10M,1=20M"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in client_variables([GrantedDevice(FIRST, 300, 0)], "/run/mps")


def test_a_daemon_sees_its_gpus_only() -> None:
    assert daemon_variables(["GPU-aa", "GPU-cc"], "/run/mps")["CUDA_VISIBLE_DEVICES"] == "GPU-aa,GPU-cc"


@given(st.integers(1, 1000))
def test_a_percentage_is_exact_and_never_none(milli: int) -> None:
    assert round(float(percent(milli)) * 10) == milli
    assert float(percent(milli)) > 0
