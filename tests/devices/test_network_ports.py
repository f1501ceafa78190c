"""State, rate and traffic of network ports, from a tree like the kernel's."""

import time
from pathlib import Path

import pytest

from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sampling.network_ports import MAX_PORTS, NetworkPortSampler
from kaiwo.devices.sampling.sampler import Sampler
from tests.devices.infiniband_trees import write_port

GB = 1_000_000_000


def test_a_machine_without_adapters_has_no_ports(tmp_path: Path) -> None:
    assert NetworkPortSampler(str(tmp_path)).sample(1.0) == ()


def test_ports_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for at in (10, 2, 0):
        write_port(tmp_path, f"mlx5_{at}")
    write_port(tmp_path, "mlx5_2", 2, is_up=False)
    found = NetworkPortSampler(str(tmp_path)).sample(1.0)
    assert [(each.device, each.number, each.is_up) for each in found] == [
        ("mlx5_0", 1, True), ("mlx5_2", 1, True), ("mlx5_2", 2, False), ("mlx5_10", 1, True),
    ]  # fmt: skip
    assert {each.mb_s for each in found} == {50_000}


def test_ports_of_virtual_functions_are_not_the_machines(tmp_path: Path) -> None:
    """They send over the port of their adapter, which counts their traffic, too."""
    write_port(tmp_path, "mlx5_0")
    write_port(tmp_path, "mlx5_1")
    device = tmp_path / "sys/class/infiniband/mlx5_1/device"
    device.mkdir()
    (device / "physfn").symlink_to("../../mlx5_0/device")
    assert [each.device for each in NetworkPortSampler(str(tmp_path)).sample(1.0)] == ["mlx5_0"]


def test_traffic_is_the_difference_of_two_samples(tmp_path: Path) -> None:
    sampler = NetworkPortSampler(str(tmp_path))
    write_port(tmp_path, "mlx5_0", sent=4 * GB, received=8 * GB)
    [first] = sampler.sample(100.0)
    assert (first.sent_mb_s, first.received_mb_s) == (None, None)
    write_port(tmp_path, "mlx5_0", sent=44 * GB, received=28 * GB)
    [second] = sampler.sample(102.0)
    assert (second.sent_mb_s, second.received_mb_s) == (20_000, 10_000)


def test_a_counter_that_was_reset_or_is_full_says_nothing(tmp_path: Path) -> None:
    sampler = NetworkPortSampler(str(tmp_path))
    write_port(tmp_path, "mlx5_0", sent=40 * GB)
    sampler.sample(100.0)
    write_port(tmp_path, "mlx5_0", sent=1 * GB)
    [after] = sampler.sample(101.0)
    assert after.sent_mb_s is None
    folder = write_port(tmp_path, "mlx5_0")
    (folder / "counters/port_xmit_data").write_text(f"{0xFFFFFFFF}\n")
    [full] = sampler.sample(102.0)
    assert full.sent_mb_s is None
    assert sampler.sample(102.0)[0].sent_mb_s is None, "no time has passed"


@pytest.mark.parametrize("text", ["", "nonsense", "\x00\xff", "-5 Gb/sec", "99999999999999 Gb/sec", "x" * 100_000])
def test_files_that_make_no_sense_are_not_known(tmp_path: Path, text: str) -> None:
    folder = write_port(tmp_path, "mlx5_0")
    for name in ("rate", "state", "counters/port_xmit_data", "counters/port_rcv_data"):
        (folder / name).write_text(text, encoding="latin-1")
    [port] = NetworkPortSampler(str(tmp_path)).sample(1.0)
    assert (port.is_up, port.mb_s, port.sent_mb_s) == (False, 0, None)


def test_files_that_are_gone_and_odd_names_do_no_harm(tmp_path: Path) -> None:
    folder = write_port(tmp_path, "mlx5_0")
    for name in ("rate", "state", "counters/port_xmit_data"):
        (folder / name).unlink()
    (tmp_path / "sys/class/infiniband/file").write_text("")
    write_port(tmp_path, "bnxt_re0", gbps=200)
    (tmp_path / "sys/class/infiniband/bnxt_re0/ports/one").mkdir()
    found = NetworkPortSampler(str(tmp_path)).sample(1.0)
    assert [(each.device, each.mb_s) for each in found] == [("bnxt_re0", 25_000), ("mlx5_0", 0)]
    for at in range(100):
        write_port(tmp_path, f"extra_{at}")
    assert len(NetworkPortSampler(str(tmp_path)).sample(1.0)) == MAX_PORTS


def test_the_agents_sample_has_the_ports_and_they_cost_little(tmp_path: Path) -> None:
    """Eight ports take well below a millisecond of the second between two samples."""
    for at in range(8):
        write_port(tmp_path, f"mlx5_{at}")
    sampler = Sampler(Inventory("node-1"), str(tmp_path))
    assert len(sampler.sample(1.0).ports) == 8
    ports, runs = NetworkPortSampler(str(tmp_path)), 200
    begun = time.process_time()
    for run in range(runs):
        ports.sample(float(run))
    per_sample_ms = (time.process_time() - begun) * 1000 / runs
    print(f"8 ports: {per_sample_ms:.2f} ms a sample")
    assert per_sample_ms < 5
