"""Read the openb trace: GPU nodes, the pods of one variant, and the arrival orders of the published experiment.

In:    a folder with the published file names.   Out: an OpenbTrace, with requests as Kaiwo's own values.
"""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import WHOLE_MILLI, Gpu
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.simulate.trace_files import Row, find_file, read_rows

NODE_FILE, ORDER_FILE = "openb_node_list_gpu_node.csv", "paper_orders.npz"
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")  # the multigpu variants have no more
MOST_GPUS, MOST_PODS = 64, 1_001
# The trace says nothing about the memory of its GPUs. With 16 MiB for each thousandth, a share's memory is a whole
# number, so it never binds before the share itself does.
DEVICE_MIB = 16 * WHOLE_MILLI


@dataclass(frozen=True, slots=True)
class OpenbTrace:
    variant: str
    nodes: tuple[Node, ...]  # sorted by their name in the trace
    requests: tuple[Request, ...]  # by row of the pod list
    order_file: Path

    @property
    def gpu_milli(self) -> int:
        """The capacity of all GPUs."""
        return WHOLE_MILLI * sum(len(node.gpus) for node in self.nodes)

    def arrivals(self, seed: int) -> "Arrivals":
        """The order of one published run."""
        order = _array(self.order_file, f"{self.variant}/{seed}")
        rank = _array(self.order_file, f"rank/{self.variant}/{seed}")
        if order and max(order) >= len(self.requests):
            raise ConfigError(
                f"{self.order_file}, {self.variant}/{seed}: row {max(order)} is beyond the {len(self.requests)} pods"
            )
        if sorted(rank) != list(range(len(self.nodes))):
            raise ConfigError(
                f"{self.order_file}, rank/{self.variant}/{seed}: it must rank each of the {len(self.nodes)} nodes once"
            )
        return Arrivals(seed, tuple(order), tuple(rank))


@dataclass(frozen=True, slots=True)
class Arrivals:
    seed: int
    order: tuple[int, ...]  # rows of the pod list, the first to arrive first
    rank: tuple[int, ...]  # by node: among equally good ones the lowest wins


def read_openb(folder: Path, variant: str) -> OpenbTrace:
    nodes = read_nodes(find_file(folder, NODE_FILE))
    models = frozenset(gpu.model for node in nodes for gpu in node.gpus)
    most = max(len(node.gpus) for node in nodes)
    pod_file = find_file(folder, f"openb_pod_list_{variant}.csv")
    requests = tuple(_request(row, models, most) for row in read_rows(pod_file, POD_COLUMNS))
    if not requests:
        raise ConfigError(f"{pod_file} lists no pods")
    nodes.sort(key=lambda node: node.name)
    return OpenbTrace(variant, tuple(nodes), requests, find_file(folder, ORDER_FILE))


def read_nodes(path: Path) -> list[Node]:
    """The nodes of a node list, each once."""
    nodes = [_node(row) for row in read_rows(path, NODE_COLUMNS)]
    if not nodes:
        raise ConfigError(f"{path} lists no nodes")
    names = [node.name for node in nodes]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{path} lists node {twice} twice")
    return nodes


def variants_in(folder: Path) -> list[str]:
    """The variants whose pod lists are there."""
    found = {path.name.removesuffix(".gz").removesuffix(".csv") for path in folder.glob("openb_pod_list_*.csv*")}
    return sorted(name.removeprefix("openb_pod_list_") for name in found)


def _node(row: Row) -> Node:
    name, model = row.text("sn"), row.text("model")
    if not name or not model:
        raise row.wrong("a GPU node needs a name (sn) and a GPU model")
    count = row.whole_number("gpu", 1, MOST_GPUS)
    gpus = tuple(Gpu(f"gpu-{number}", model, DEVICE_MIB) for number in range(count))
    return Node(name, row.whole_number("cpu_milli", 1), row.whole_number("memory_mib", 1), MOST_PODS, gpus)


def _request(row: Row, models: frozenset[str], most_gpus: int) -> Request:
    cpu_milli, memory_mib = row.whole_number("cpu_milli"), row.whole_number("memory_mib")
    gpus = row.whole_number("num_gpu", 0, MOST_GPUS)
    if not gpus:
        return Request(cpu_milli, memory_mib)
    milli = row.whole_number("gpu_milli", 1, WHOLE_MILLI)
    if gpus > 1 and milli < WHOLE_MILLI:
        raise row.wrong(f"{gpus} GPUs of {milli} milli each; several GPUs must be whole (gpu_milli 1000)")
    if gpus > most_gpus:
        raise row.wrong(f"num_gpu is {gpus}, and no node has more than {most_gpus} GPUs")
    return Request(cpu_milli, memory_mib, gpus, milli, gpu_models=_models(row, models))


def _models(row: Row, known: frozenset[str]) -> tuple[str, ...]:
    """As the row lists them, even twice: the published policy counts differently written lists as different kinds."""
    asked = tuple(name for name in row.text("gpu_spec").split("|") if name)
    if asked and not known.intersection(asked):
        raise row.wrong(f"gpu_spec is {row.text('gpu_spec')!r}, and no node has such a GPU")
    return asked


def _array(path: Path, name: str) -> Sequence[int]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if name not in arrays.files:
                variant = name.removeprefix("rank/").rpartition("/")[0]
                seeds = sorted(each.rpartition("/")[2] for each in arrays.files if each.startswith(f"{variant}/"))
                there = f"its seeds are {', '.join(seeds)}" if seeds else "it has no orders of that variant"
                raise ConfigError(f"{path} has no array {name}; {there}")
            found = arrays[name]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} cannot be read as an archive of arrays: {error}") from None
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ConfigError(f"{path}, {name}: expected a list of whole numbers, found {found.dtype} {found.shape}")
    return [int(each) for each in found]
