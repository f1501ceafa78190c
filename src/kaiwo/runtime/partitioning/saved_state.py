"""The file that keeps the partitioning policy, people's plans and the changes in progress over a restart."""

import os
from pathlib import Path
from typing import Literal

import msgspec

from kaiwo.gpus.partitioning.demand import GpuModeState
from kaiwo.gpus.partitioning.rollout import whole_gpu_mib, with_modes_applied
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan
from kaiwo.model.node import Node

FILE = Path("partitions") / "state.json"  # in KAIWO_HOME
Policy = Literal["off", "dry-run", "on"]
POLICIES: tuple[Policy, ...] = ("off", "dry-run", "on")


class ChangeInProgress(msgspec.Struct, frozen=True):
    """A GPU whose mode was set or is being set by Kaiwo."""

    node: str
    gpu: str
    state: GpuModeState
    size_mib: int  # of the whole GPU
    due_s: int = 0  # when an emulated change is over, by the cluster's clock


class SavedState(msgspec.Struct, frozen=True):
    policy: Policy = "dry-run"
    plans: tuple[PartitioningPlan, ...] = ()
    underway: tuple[ChangeInProgress, ...] = ()


def read_state(path: Path) -> SavedState:
    """The defaults when there is no file yet."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedState)
    except FileNotFoundError:
        return SavedState()
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{path} records the partition changes in progress and cannot be read ({error}); "
            "look at the GPUs with `kaiwo discover`, then remove the file"
        ) from error


def write_state(path: Path, state: SavedState) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.touch(mode=0o600)
    with open(temporary, "wb") as file:
        file.write(msgspec.json.encode(state))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def with_saved_modes(node: Node, saved: SavedState) -> Node:
    """A virtual node as it was described, with the modes that its GPUs were given since."""
    models = {gpu.parent or gpu.id: gpu.model for gpu in node.gpus}
    mine = [each for each in saved.underway if each.node == node.name and models.get(each.gpu) == each.state.model]
    states = {(each.node, each.gpu): each.state for each in mine}
    sizes = {(each.node, each.gpu): each.size_mib or whole_gpu_mib(node, each.gpu) for each in mine}
    return with_modes_applied(node, states, sizes)
