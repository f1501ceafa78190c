"""Network cards from sysfs: which GPUs are next to each, and what a granted container learns of it."""

from pathlib import Path

from msgspec.structs import replace

from kaiwo.devices.agent.kubelet.container_spec import container_spec
from kaiwo.devices.amd.machine_paths import MachinePaths
from kaiwo.devices.inventory import Inventory, Link, Nic, Partition, PhysicalGpu
from kaiwo.devices.network_cards import read_network_cards
from kaiwo.devices.sharing.share_types import GpuDevice, Grant, GrantedDevice
from kaiwo.runtime.nodes.local_node import devices_of, wiring_of

ROOT_A, ROOT_B = "pci0000:00/0000:00:01.0", "pci0000:80/0000:80:01.0"
SWITCH_A = f"{ROOT_A}/0000:01:00.0"
DEVICES = {
    "0000:05:00.0": f"{SWITCH_A}/0000:02:00.0/0000:05:00.0",  # a GPU and a card behind one switch
    "0000:06:00.0": f"{SWITCH_A}/0000:02:01.0/0000:06:00.0",
    "0000:85:00.0": f"{ROOT_B}/0000:85:00.0",
    "0000:86:00.0": "pci0000:80/0000:80:02.0/0000:86:00.0",
    "0000:87:00.0": f"{SWITCH_A}/0000:02:01.0/0000:87:00.0",
}
CARDS = {"mlx5_0": "0000:06:00.0", "mlx5_10": "0000:86:00.0", "mlx5_2": "0000:87:00.0"}
GPUS = tuple(
    PhysicalGpu(pci, "amd", "MI300X", pci=pci, numa=numa, memory_mib=1) for pci, numa in
    (("0000:05:00.0", 0), ("0000:85:00.0", 1))
)  # fmt: skip


def machine(root: Path) -> Path:
    for address, path in DEVICES.items():
        folder = root / "sys/devices" / path
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text("1\n" if address.startswith("0000:8") else "0\n")
        link = root / "sys/bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
    for name, address in CARDS.items():
        ports = root / "sys/class/infiniband" / name / "ports/1"
        ports.mkdir(parents=True)
        (ports / "rate").write_text("400 Gb/sec (4X NDR)\n")
        (root / "sys/class/infiniband" / name / "device").symlink_to(root / "sys/devices" / DEVICES[address])
    return root


def test_a_card_is_next_to_the_gpus_behind_the_same_switch(tmp_path: Path) -> None:
    found = read_network_cards(MachinePaths(str(machine(tmp_path))), GPUS)
    assert [(nic.name, nic.pci, nic.numa, nic.speed_mbit_s, nic.near) for nic in found] == [
        ("mlx5_0", "0000:06:00.0", 0, 400_000, ("0000:05:00.0",)),
        ("mlx5_2", "0000:87:00.0", 1, 400_000, ("0000:05:00.0",)),
        ("mlx5_10", "0000:86:00.0", 1, 400_000, ()),  # another root port: only the CPU connects it to a GPU
    ]


def test_virtual_functions_and_broken_entries_are_left_out(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "sys/devices" / DEVICES["0000:87:00.0"] / "physfn").symlink_to("../0000:06:00.0")
    (root / "sys/class/infiniband/mlx5_10/device").unlink()
    (root / "sys/class/infiniband/mlx5_10/device").symlink_to("/etc")
    (root / "sys/class/infiniband/bad name").mkdir()
    (root / "sys/class/infiniband/mlx5_0/ports/1/rate").write_text("fast\n")
    found = read_network_cards(MachinePaths(str(root)), GPUS)
    assert [(nic.name, nic.pci, nic.speed_mbit_s) for nic in found] == [
        ("mlx5_0", "0000:06:00.0", None),
        ("mlx5_10", "", 400_000),
    ]
    assert read_network_cards(MachinePaths(str(tmp_path / "nothing")), GPUS) == ()


def test_a_port_without_a_cable_adds_nothing_to_the_speed_of_its_card(tmp_path: Path) -> None:
    """The kernel gives a port that is down a rate, too: the slowest that there is."""
    ports = machine(tmp_path) / "sys/class/infiniband/mlx5_0/ports"
    (ports / "1/state").write_text("4: ACTIVE\n")
    (ports / "2").mkdir()
    (ports / "2/state").write_text("1: DOWN\n")
    (ports / "2/rate").write_text("10 Gb/sec (4X SDR)\n")
    found = read_network_cards(MachinePaths(str(tmp_path)), GPUS)
    assert found[0].speed_mbit_s == 400_000


def inventory() -> Inventory:
    nics = (Nic("mlx5_0", "0000:06:00.0", 0, near=("0000:05:00.0",)), Nic("mlx5_9", "0000:90:00.0", 1, near=()))
    return Inventory("n", GPUS, nics=nics)


def test_a_container_learns_the_cards_and_numa_nodes_next_to_its_gpus() -> None:
    def told(inventory: Inventory, *ids: str) -> dict[str, str]:
        held = tuple(GrantedDevice(GpuDevice(name, "amd"), 1000, 1) for name in ids)
        return container_spec(Grant("pod", "none", "none", held), inventory).environment

    assert told(inventory(), "0000:05:00.0") == {"KAIWO_NUMA_NODES": "0", "KAIWO_NICS": "mlx5_0"}
    assert told(inventory(), "0000:85:00.0") == {"KAIWO_NUMA_NODES": "1"}
    assert told(inventory(), "0000:05:00.0", "0000:85:00.0")["KAIWO_NUMA_NODES"] == "0,1"
    cut = replace(GPUS[0], partitions=(Partition("p0", 0), Partition("p1", 1)))
    assert told(replace(inventory(), gpus=(cut,)), "p1") == {"KAIWO_NUMA_NODES": "0", "KAIWO_NICS": "mlx5_0"}
    assert told(Inventory("n", (PhysicalGpu("x", "amd", "MI300X"),)), "x") == {}


def test_the_wiring_of_a_node_knows_cards_and_numa_nodes_without_any_link() -> None:
    found = inventory()
    wiring = wiring_of(found, devices_of(found))
    assert (wiring.numa, wiring.nic, wiring.nic_names) == ((0, 1), (0, -1), ("mlx5_0", "mlx5_9"))
    assert wiring.nic_names_of([0, 1]) == ["mlx5_0"]
    assert wiring.numa_nodes_of([1, 0]) == [0, 1]


def test_a_switch_serves_all_others_together() -> None:
    linked = [
        replace(gpu, links=(Link(other.id, "nvlink", count=18, bandwidth_mb_s=450_000, is_switched=True),))
        for gpu, other in zip(GPUS, reversed(GPUS), strict=True)
    ]
    found = Inventory("n", tuple(linked))
    assert wiring_of(found, devices_of(found)).total_mb_s == (450_000, 450_000)
