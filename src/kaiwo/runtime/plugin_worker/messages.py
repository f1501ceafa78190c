"""What the scheduler and a worker say to each other. Messages go through pipes, arrays through shared memory."""

import struct
from typing import Any

import msgspec
import numpy as np

from kaiwo.model.node import Node
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.plugins.contract import ReplicaNeed
from kaiwo.plugins.edge_contract import MonitoringSample, Notice, StartPlacement
from kaiwo.runtime.plugin_worker.confinement import MEMORY_MIB, Grade
from kaiwo.runtime.plugin_worker.shared_memory import ArrayPlace

# Of an answer: its number, whether it is an array (1), a value (2) or a fault (3), and the bytes in the output.
ANSWER = struct.Struct("<QBQ")
ARRAY, VALUE, FAULT = 1, 2, 3
READY = 0  # the number of the answer to `Load`


class Load(msgspec.Struct, frozen=True, tag=True):
    """Load a plugin; sent once. It answers with `Loaded`."""

    name: str
    folder: str  # with its staged files
    object: str  # `module:attribute`
    config: dict[str, Any] = {}
    memory_mib: int = MEMORY_MIB


class Loaded(msgspec.Struct, frozen=True):
    """What the plugin declares, as plain values."""

    points: tuple[str, ...]
    grade: Grade
    declared: dict[str, Any]  # weight, reason, is_static, depends_on, placement, fills, divides_like
    has_applies: bool = False
    has_unreserve: bool = False
    version: str = ""


class Define(msgspec.Struct, frozen=True, tag=True):
    """Nodes and queues that are new to the worker; the columns of the node table are in the input. It answers None."""

    number: int
    names: tuple[str, ...] | None  # of all nodes; None: as before
    nodes: tuple[Node, ...]  # that are new or were redefined
    arrays: dict[str, ArrayPlace]
    models: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    extended_names: tuple[str, ...] = ()
    vendors: dict[str, str] = {}
    queues: tuple[Queue, ...] | None = None  # None: as before


# Columns of the node table that a confined plugin sees.
NODE_COLUMNS = (
    "cpu_size", "memory_size", "gpu_total", "gpu_model", "gpu_profile", "device_milli", "schedulable", "node_changed",
)  # fmt: skip


class DomainNames(msgspec.Struct, frozen=True, array_like=True):
    workload: str
    queue: str
    topology: str
    level: str
    names: tuple[str, ...]


class Ask(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Call one point. Arrays of the view and arguments are in the input, by name."""

    number: int
    point: str
    arrays: dict[str, ArrayPlace] = {}
    now_s: int = 0
    clock: int = 0
    want: Request | None = None
    node: int = -1
    workload: Workload | None = None
    policy: Policy | None = None
    names: tuple[str, ...] = ()  # of the workloads of victims
    queues: tuple[str, ...] = ()  # of the same
    sample: MonitoringSample | None = None
    placements: tuple[StartPlacement, ...] = ()
    notice: Notice | None = None
    nodes: tuple[Node, ...] = ()  # for the points that get all of them
    text: str = ""
    domains: DomainNames | None = None  # with the arrays `domain_amounts`, `terms` and `weights`
    need: ReplicaNeed | None = None


Message = Load | Define | Ask
encoder = msgspec.msgpack.Encoder()
decoder = msgspec.msgpack.Decoder(Message)


class ArrayAnswer(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


ANSWER_DTYPES = frozenset(("<i8", "<i4", "<i2", "|i1", "|b1", "<f8", "<f4", "<u8", "<u4", "<u2", "|u1"))
_array_decoder = msgspec.msgpack.Decoder(ArrayAnswer)


def encode_array(array: np.ndarray[Any, Any]) -> bytes:
    return encoder.encode(ArrayAnswer(array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes()))


def decode_array(data: bytes) -> np.ndarray[Any, Any]:
    """Raises ValueError or msgspec.MsgspecError for what is not an array of numbers."""
    found = _array_decoder.decode(data)
    if found.dtype not in ANSWER_DTYPES:
        raise ValueError(f"an array of {found.dtype[:20]}")
    return np.frombuffer(found.data, np.dtype(found.dtype)).reshape(found.shape)
