"""What the scheduler and a worker say to each other. Messages go through pipes, arrays through shared memory."""

import struct
from typing import Annotated, Any

import msgspec
import numpy as np

from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.plugins.contract import ReplicaNeed
from kaiwo.plugins.edge_contract import (
    Metric,
    MonitoringSample,
    Notice,
    ResourceAmounts,
    StartPlacement,
    Verdict,
)
from kaiwo.plugins.guarded_calls import MAX_ORDER
from kaiwo.plugins.registry import ALL_POINTS
from kaiwo.runtime.plugin_worker.confinement import MEMORY_MIB
from kaiwo.runtime.plugin_worker.shared_memory import ArrayPlace

# Of an answer: its number, whether it is an array (1), a value (2) or a fault (3), and the bytes in the output.
ANSWER = struct.Struct("<QBQ")
ARRAY, VALUE, FAULT = 1, 2, 3
CONFINED, LOADED = 0, 1  # the numbers of the answers to `Confine` and `Load`
MAX_LOADED, MAX_VALUE = 64 << 10, 4 << 20
MAX_NONSENSE = 4_096  # of an answer that should be an array: enough to say what it is


class Confine(msgspec.Struct, frozen=True, tag=True):
    """Give up all rights; sent once, first. It answers with its Grade. No code of the plugin has run until then: what
    that could say about its confinement would be worth nothing."""

    folder: str
    memory_mib: int


class Load(msgspec.Struct, frozen=True, tag=True):
    """Load a plugin; sent once, then. It answers with `Loaded`."""

    name: str
    folder: str  # with its staged files
    object: str  # `module:attribute`
    config: dict[str, Any] = {}
    memory_mib: int = MEMORY_MIB


DECLARED = ("weight", "reason", "is_static", "depends_on", "placement", "fills", "divides_like")
OPTIONAL = ("applies", "gpu_applies", "unreserve")  # methods


class Loaded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the plugin serves and declares, as plain values."""

    points: tuple[str, ...]
    declared: dict[str, int | float | str | bool | list[str] | None]  # by names of DECLARED
    methods: tuple[str, ...] = ()  # of OPTIONAL
    version: str = ""  # what its class says; that of the manifest counts


def read_loaded(data: bytes) -> Loaded:
    """Raises ValueError for what no worker says: the plugin's code has run, and may have written this itself."""
    if len(data) > MAX_LOADED:
        raise ValueError(f"{len(data):,} bytes of declarations")
    found = msgspec.msgpack.decode(data, type=Loaded)
    allowed = ((found.points, ALL_POINTS), (found.declared, DECLARED), (found.methods, OPTIONAL))
    for names, known in allowed:
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"it declares {unknown[0]!r:.60}")
    Reason(str(found.declared.get("reason", Reason.PLUGIN.value)))
    return found


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
    more: tuple[Request, ...] = ()  # asked along with it: the answer has a row for each
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


Message = Confine | Load | Define | Ask
encoder = msgspec.msgpack.Encoder()
decoder = msgspec.msgpack.Decoder(Message)

# What a point answers that does not answer with an array. It is decoded as this and nothing else: a million empty lists
# take one byte each in a message, and sixty in the scheduler.
_VALUES: dict[str, Any] = {
    "reserve": list[Verdict],
    "permit": list[Verdict],
    "unreserve": None,
    "bind": list[dict[str, str]],
    "post_bind": None,
    "resource": ResourceAmounts,
    "topology_source": Topology | None,
    "metrics": list[Metric],
    "sink": str,
    "notification": str,
    "workload_order": Annotated[tuple[int, ...], msgspec.Meta(max_length=MAX_ORDER)],
    "applies": bool,
    "gpu_applies": bool,
}
_value_decoders = {point: msgspec.msgpack.Decoder(wanted) for point, wanted in _VALUES.items()}


def decode_value(data: bytes, point: str) -> Any:
    """Raises ValueError or RecursionError for what the point does not answer."""
    decoder_of_point = _value_decoders.get(point)
    most = MAX_NONSENSE if decoder_of_point is None else MAX_VALUE
    if len(data) > most:
        raise ValueError(f"{len(data):,} bytes; {most:,} is the most")
    return msgspec.msgpack.decode(data) if decoder_of_point is None else decoder_of_point.decode(data)


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
