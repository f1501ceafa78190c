"""The messages of a node agent to Kaiwo, one line of JSON each: Hello, Sample and Correction.

Never: changes the meaning of a field. New fields have defaults, so that old and new agents and servers work together.
"""

from collections.abc import Iterable

import msgspec

from kaiwo.devices.inventory import Errors, Health, Inventory, Telemetry
from kaiwo.devices.sharing.share_types import IsolationSupport
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpus.gpu import Share

MEDIA_TYPE = "application/x-ndjson"
MAX_LINE_BYTES = 4 << 20


class ProcessUse(msgspec.Struct, frozen=True, omit_defaults=True):
    pid: int
    device: str  # a GPU's or a partition's id
    memory_mib: int | None = None
    busy_percent: int | None = None  # of the device's compute units
    queues: int | None = None
    owner: str = ""  # the id of its run or the UID of its pod, if known


class PartitionUse(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    memory_used_mib: int | None = None
    busy_percent: int | None = None
    processes: int = 0


class GpuSample(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    telemetry: Telemetry = Telemetry()
    errors: Errors = Errors()
    health: Health = "healthy"
    reason: str = ""
    xids: tuple[int, ...] = ()  # NVIDIA's error events since the last sample
    oversubscribed: str = ""  # why there are too many processes or queues; empty if not
    partitions: tuple[PartitionUse, ...] = ()
    processes: tuple[ProcessUse, ...] = ()


class PortSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """A port of a network adapter."""

    device: str  # `mlx5_0`
    number: int
    is_up: bool
    mb_s: int = 0  # 0: not known
    sent_mb_s: int | None = None  # since the sample before; None: not known
    received_mb_s: int | None = None


class HeldDevices(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent gave to one pod, which has not ended."""

    namespace: str
    pod: str
    uid: str
    devices: tuple[Share, ...]


class Hello(msgspec.Struct, frozen=True, omit_defaults=True, tag="hello"):
    """The first line of every stream, and again whenever the devices or their holders change."""

    node: str
    version: str
    boot: str
    inventory: Inventory
    platform: IsolationSupport | None = None  # None: an old agent
    held: tuple[HeldDevices, ...] | None = None  # None: an agent that does not verify grants


class Sample(msgspec.Struct, frozen=True, omit_defaults=True, tag="sample"):
    node: str
    number: int  # increases by one within a stream
    time_s: float
    gpus: tuple[GpuSample, ...] = ()
    notes: tuple[str, ...] = ()
    ports: tuple[PortSample, ...] = ()


class Correction(msgspec.Struct, frozen=True, omit_defaults=True, tag="correction"):
    """A pod runs on other devices than its annotation says: the actual devices, and why."""

    node: str
    namespace: str
    pod: str
    uid: str
    devices: tuple[Share, ...]
    reason: str


Line = Hello | Sample | Correction
_decoder = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def with_health(inventory: Inventory, sample: Sample) -> Inventory:
    """The devices with the health that this sample reports."""
    seen = {one.id: one for one in sample.gpus}
    gpus = (
        msgspec.structs.replace(gpu, health=one.health, reason=one.reason) if (one := seen.get(gpu.id)) else gpu
        for gpu in inventory.gpus
    )
    return msgspec.structs.replace(inventory, gpus=tuple(gpus))


def encode_line(line: Line) -> bytes:
    return _encoder.encode(line) + b"\n"


def decode_line(data: bytes) -> Line:
    """Decode one line; ClusterError if it is invalid."""
    if len(data) > MAX_LINE_BYTES:
        raise ClusterError(f"an agent's line has {len(data)} bytes; the limit is {MAX_LINE_BYTES}")
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ClusterError(f"an agent's line is invalid: {error}") from error


class LineReader:
    """Splits a stream of bytes into lines, however it is chunked."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def has_partial_line(self) -> bool:
        return bool(self._rest.strip())

    def feed(self, data: bytes) -> Iterable[Line]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise ClusterError(f"an agent's line is longer than {MAX_LINE_BYTES} bytes")
        return [decode_line(line) for line in lines if line.strip()]
