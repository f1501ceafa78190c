"""What a node agent tells Kaiwo, a line of JSON each: who it is, what its GPUs do every second, what it corrected.

In:    inventories and samples.   Out: lines for the stream, and the same values on the other side.
Never: changes the meaning of a field; new ones have defaults, so that old agents and old servers understand each other.
"""

from collections.abc import Iterable

import msgspec

from kaiwo.devices.inventory import Errors, Health, Inventory, Telemetry
from kaiwo.devices.sharing.share_types import IsolationSupport
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpu import Share

MEDIA_TYPE = "application/x-ndjson"
MOST_LINE_BYTES = 4 << 20


class ProcessUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one process uses of one device."""

    pid: int
    device: str  # a GPU's or a partition's id
    memory_mib: int | None = None
    busy_percent: int | None = None  # of the device's compute units
    queues: int | None = None
    owner: str = ""  # whose it is, where the process tells: a run's id, or a pod's UID


class PartitionUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one partition does, as far as its processes tell."""

    id: str
    memory_used_mib: int | None = None
    busy_percent: int | None = None
    processes: int = 0


class GpuSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One physical GPU at one moment."""

    id: str
    telemetry: Telemetry = Telemetry()
    errors: Errors = Errors()
    health: Health = "healthy"
    reason: str = ""
    xids: tuple[int, ...] = ()  # NVIDIA's error events since the last sample
    oversubscribed: str = ""  # too many processes or queues for the hardware
    partitions: tuple[PartitionUse, ...] = ()
    processes: tuple[ProcessUse, ...] = ()


class Hello(msgspec.Struct, frozen=True, omit_defaults=True, tag="hello"):
    """The first line of every stream, and again whenever the devices are others."""

    node: str
    version: str
    boot: str
    inventory: Inventory
    platform: IsolationSupport | None = None  # what else keeps tenants apart there; None: an old agent


class Sample(msgspec.Struct, frozen=True, omit_defaults=True, tag="sample"):
    """All GPUs of a node at one moment."""

    node: str
    number: int  # counts up by one within a stream
    time_s: float
    gpus: tuple[GpuSample, ...] = ()
    notes: tuple[str, ...] = ()


class Correction(msgspec.Struct, frozen=True, omit_defaults=True, tag="correction"):
    """A pod runs on other devices than were written on it: what it really has, and why."""

    node: str
    namespace: str
    pod: str
    uid: str
    devices: tuple[Share, ...]
    reason: str


Line = Hello | Sample | Correction
_decoder = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def encode_line(line: Line) -> bytes:
    """With its newline."""
    return _encoder.encode(line) + b"\n"


def decode_line(data: bytes) -> Line:
    """ClusterError when it is none."""
    if len(data) > MOST_LINE_BYTES:
        raise ClusterError(f"a line of an agent has {len(data)} bytes; at most {MOST_LINE_BYTES} are read")
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ClusterError(f"a line of an agent is not understood: {error}") from error


class LineReader:
    """Cuts a stream of bytes into lines, whatever pieces it comes in."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_inside(self) -> bool:
        """The last line has no end yet."""
        return bool(self._rest.strip())

    def feed(self, data: bytes) -> Iterable[Line]:
        """The lines that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_LINE_BYTES:
            raise ClusterError(f"a line of an agent is longer than {MOST_LINE_BYTES} bytes")
        return [decode_line(line) for line in lines if line.strip()]
