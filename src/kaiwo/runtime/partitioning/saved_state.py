"""What the partition loop must not forget: its policy, the plans that people gave it, and what is under way.

In:    a folder.   Out: the same values after `kill -9`.
Never: half a file; one that cannot be read stops the start with the way out.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from kaiwo.gpus.partitioning.demand import GpuModeState
from kaiwo.gpus.partitioning.rollout import whole_gpu_mib, with_modes_applied
from kaiwo.model.errors import ConfigError
from kaiwo.model.node import Node
from kaiwo.model.partitioning_plan import PartitioningPlan

FILE = Path("partitions") / "state.json"  # in KAIWO_HOME
Policy = Literal["off", "dry-run", "on"]
POLICIES: tuple[Policy, ...] = ("off", "dry-run", "on")


class Underway(msgspec.Struct, frozen=True):
    """One GPU that an earlier plan took in hand."""

    node: str
    gpu: str
    state: GpuModeState
    size_mib: int  # of the whole GPU
    due_s: int = 0  # when an emulated change is over, by the cluster's clock


class Kept(msgspec.Struct, frozen=True):
    """All of it."""

    policy: Policy = "dry-run"
    plans: tuple[PartitioningPlan, ...] = ()
    underway: tuple[Underway, ...] = ()


def read_kept(path: Path) -> Kept:
    """What was kept; the defaults when nothing was."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return Kept()
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{path} says which partition changes are under way and cannot be read ({error}); "
            "look at the GPUs with `kaiwo discover`, then remove the file"
        ) from error


def write_kept(path: Path, kept: Kept) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(beside, "wb") as file:
        file.write(msgspec.json.encode(kept))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def as_changed(nodes: Sequence[Node], kept: Kept) -> list[Node]:
    """Virtual nodes as somebody described them, with the modes that their GPUs were given since."""
    return [_as_changed(node, kept) for node in nodes]


def _as_changed(node: Node, kept: Kept) -> Node:
    models = {gpu.parent or gpu.id: gpu.model for gpu in node.gpus}
    mine = [each for each in kept.underway if each.node == node.name and models.get(each.gpu) == each.state.model]
    course = {(each.node, each.gpu): each.state for each in mine}
    return with_modes_applied(
        node, course, {(each.node, each.gpu): each.size_mib or whole_gpu_mib(node, each.gpu) for each in mine}
    )
