"""`kaiwo discover`: show the GPUs of a machine, read from its own files. It needs no running Kaiwo."""

import os
from typing import IO, TYPE_CHECKING

import click

from kaiwo.cli.lists.columns import NUMBER, WIDE
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import Column, lay_out
from kaiwo.cli.verb_base import add_options
from kaiwo.model.amounts import count, rounded_memory

if TYPE_CHECKING:
    from kaiwo.devices.inventory import Inventory, Partition, PhysicalGpu

MAX_BYTES = 64 << 20
TEXT_FILE = click.File(encoding="utf-8", errors="replace")


@click.command()
@add_options(
    click.option("--root", metavar="DIR", default="/", type=click.Path(exists=True, file_okay=False),
                 help="Root of the machine, a copy of its /sys, or a KFD topology tree."),
    click.option("--amd-smi-json", "smi", metavar="FILE", type=TEXT_FILE,
                 help="Fill gaps from the output of amd-smi or rocm-smi with --json; - for stdin."),
    click.option("--dump", metavar="FILE", type=TEXT_FILE,
                 help="Read this topology dump of NCCL or RCCL, or output of nvidia-smi -q -x, instead."),
    printing.output_option("table", "wide", "json", "yaml"),
)  # fmt: skip
def discover(root: str, smi: IO[str] | None, dump: IO[str] | None, output: str) -> None:
    """Show the GPUs of this machine, or of another machine whose files are under DIR.

    AMD GPUs are read from sysfs, NVIDIA GPUs from NVML. A partitioned GPU is one row; -o wide adds a row for each
    partition. A GPU whose data can't be read in full is shown as degraded, with the reason.

    \b
    Examples:
      kaiwo discover
      kaiwo discover -o wide
      kaiwo discover --root ./copy-of-node-7 -o json
      amd-smi static --json | kaiwo discover --amd-smi-json -
    """
    from kaiwo.devices.discover import discover as find

    if dump:
        from kaiwo.devices.machine_dumps import read_dump

        inventory = read_dump(dump.read(MAX_BYTES), os.path.basename(dump.name))
    else:
        inventory = find(root, smi.read(MAX_BYTES) if smi else "")
    if output in ("json", "yaml"):
        import msgspec

        printing.print_data(msgspec.to_builtins(inventory), output)
    elif inventory.gpus:
        _print(inventory, output == "wide")
    for note in inventory.notes:
        printing.hint(f"note: {note}")
    if not inventory.gpus:
        _explain_no_gpu(root, output)


def _print(inventory: "Inventory", is_wide: bool) -> None:
    columns = [column for column in COLUMNS if is_wide or not column.is_wide]
    rows = []
    for gpu in inventory.gpus:
        rows.append([column.text(gpu, 0.0) for column in columns])
        if is_wide:
            rows += [[_partition_cell(column.title, part) for column in columns] for part in gpu.partitions]
    click.echo(printing.bold(summary(inventory)))
    for line in lay_out(columns, rows, 0 if is_wide else printing.terminal_width(), paint=printing.paint_state):
        click.echo(line)


def summary(inventory: "Inventory") -> str:
    """`node-7 has 8 GPUs (MI300X) in 63 partitions`."""
    gpus = inventory.gpus
    models = ", ".join(dict.fromkeys(gpu.model for gpu in gpus))
    parts = sum(len(gpu.partitions) for gpu in gpus)
    ill = sum(gpu.health != "healthy" for gpu in gpus)
    text = f"{inventory.node} has {count(len(gpus), 'GPU')} ({models})"
    text += f" in {count(parts, 'partition')}" if parts else ""
    return text + (f"; {ill} not healthy" if ill else "")


COLUMNS = (
    Column("GPU", lambda g, _: g.id),
    Column("MODEL", lambda g, _: g.model, min_width=8),
    Column("MEMORY", lambda g, _: _memory_or(g.memory_mib or None, "?"), NUMBER),
    Column("CUS", lambda g, _: str(g.compute_units or "?"), NUMBER),
    Column("MODE", lambda g, _: "+".join(filter(None, (g.compute_mode, g.memory_mode))), min_width=8),
    Column("PARTS", lambda g, _: str(len(g.partitions) or ""), NUMBER),
    Column("NUMA", lambda g, _: _value_or_blank(g.numa), NUMBER),
    Column("LINKS", lambda g, _: _links(g), min_width=8),
    Column("BUSY", lambda g, _: _value_or_blank(g.telemetry.utilisation_percent, "%"), NUMBER),
    Column("USED", lambda g, _: _memory_or(g.telemetry.memory_used_mib, ""), NUMBER),
    Column("TEMP", lambda g, _: _value_or_blank(g.telemetry.temperature_c, "°C"), NUMBER, WIDE),
    Column("POWER", lambda g, _: _value_or_blank(g.telemetry.power_w, "W"), NUMBER, WIDE),
    Column("RENDER", lambda g, _: g.render, False, WIDE),
    Column("DEVICE", lambda g, _: g.device_id, False, WIDE),
    Column("TARGET", lambda g, _: g.target, False, WIDE),
    Column("HIVE", lambda g, _: g.hive, False, WIDE),
    Column("SERIAL", lambda g, _: g.serial, False, WIDE),
    Column("HEALTH", lambda g, _: g.health, is_state=True),
    Column("REASON", lambda g, _: g.reason),
)


def _partition_cell(title: str, part: "Partition") -> str:
    cells = {
        "GPU": f"  {part.id}",
        "MODEL": part.profile,
        "MEMORY": _memory_or(part.memory_mib or None, "?"),
        "CUS": str(part.compute_units or "?"),
        "RENDER": part.render,
        "DEVICE": part.device,
        "SERIAL": part.uuid,
        "HEALTH": part.health,
        "REASON": part.reason,
    }
    return cells.get(title, "")


def _value_or_blank(value: int | None, unit: str = "") -> str:
    return "" if value is None else f"{value}{unit}"


def _memory_or(mib: int | None, unknown: str) -> str:
    return unknown if mib is None else rounded_memory(mib)


def _links(gpu: "PhysicalGpu") -> str:
    """`3 xgmi, 4 pcie`."""
    kinds = sorted((link.kind for link in gpu.links), key="pcie".__eq__)  # the bus last
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _explain_no_gpu(root: str, output: str) -> None:
    from kaiwo.devices.discover import nearby_roots, searched_paths

    say = printing.hint if output in ("json", "yaml") else click.echo
    say(f"no GPU found under {root}; looked for")
    for place in searched_paths(root):
        say(f"  {place}")
    if near := nearby_roots(root):
        say("these folders below it contain a topology:")
        for folder in near:
            say(f"  kaiwo discover --root {folder}")
    elif root == "/":
        say("AMD: load the driver (modprobe amdgpu) and read dmesg. NVIDIA: nvidia-smi must work; pip install")
        say("'kaiwo[nvidia]'. A container needs the devices: --device /dev/kfd --device /dev/dri, or --gpus all.")
        say("Without a GPU, `kaiwo up` creates a virtual cluster.")
    else:
        say("copy /sys/class/kfd/kfd/topology of the machine to DIR/sys/class/kfd/kfd/topology and try again")
