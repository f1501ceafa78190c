"""Trees of /sys/class/infiniband, as the kernel shows adapters."""

from pathlib import Path

STATES = {True: "4: ACTIVE", False: "1: DOWN"}


def write_port(
    root: Path, device: str, number: int = 1, *, is_up: bool = True, gbps: int = 400, sent: int = 0, received: int = 0
) -> Path:
    """`sent` and `received` are bytes; the kernel counts words of four."""
    folder = root / "sys/class/infiniband" / device / "ports" / str(number)
    (folder / "counters").mkdir(parents=True, exist_ok=True)
    (folder / "state").write_text(STATES[is_up] + "\n")
    (folder / "phys_state").write_text("5: LinkUp\n" if is_up else "3: Disabled\n")
    (folder / "rate").write_text(f"{gbps} Gb/sec (4X NDR)\n")
    (folder / "link_layer").write_text("InfiniBand\n")
    (folder / "counters/port_xmit_data").write_text(f"{sent // 4}\n")
    (folder / "counters/port_rcv_data").write_text(f"{received // 4}\n")
    return folder
