"""What the scheduler and the webhooks' process say to each other, over a socket that only these two have.

A message is JSON behind its length in four bytes. The end of the socket means that the other process is gone.
"""

import asyncio
import struct

import msgspec

from kaiwo.model.queue import Queue

LENGTH = struct.Struct(">I")
MAX_BYTES = 64 << 20  # ten thousand queues have some megabytes


class ProcessSettings(msgspec.Struct, tag="settings"):
    """The first message to the process."""

    kubeconfig: str
    context: str
    scheduler: str
    may_name_users: list[str]
    trusted_controllers: list[str]
    client_ca: str = ""  # a file; empty: whoever reaches the port may ask
    client_names: list[str] = []


class ServedCertificate(msgspec.Struct, tag="certificate"):
    certificate: str
    key: str


class KnownQueues(msgspec.Struct, tag="queues"):
    queues: list[Queue]


class LivingWork(msgspec.Struct, tag="living"):
    """How many workloads each queue has."""

    counts: dict[str, int]


class AskLiving(msgspec.Struct, tag="ask-living"):
    pass


class Serving(msgspec.Struct, tag="serving"):
    """The process has a certificate and answers."""


class Reported(msgspec.Struct, tag="report"):
    event: str
    level: str
    fields: dict[str, str]


class Counted(msgspec.Struct, tag="counted"):
    """What happened since the last one of these, which is sent every second: it also shows that the process lives."""

    answers: dict[str, dict[str, int]] = {}  # by endpoint and answer
    refusals: dict[str, dict[str, int]] = {}  # by endpoint and reason
    times: dict[str, list[int]] = {}  # by endpoint: the histogram
    sums_s: dict[str, float] = {}
    dropped: dict[str, int] = {}  # connections and requests of strangers, by cause
    connections: int = 0  # open now


ToProcess = ProcessSettings | ServedCertificate | KnownQueues | LivingWork
ToScheduler = AskLiving | Serving | Reported | Counted
_encode = msgspec.json.Encoder().encode
read_to_process = msgspec.json.Decoder(ToProcess).decode
read_to_scheduler = msgspec.json.Decoder(ToScheduler).decode


def write_message(writer: asyncio.StreamWriter, message: ToProcess | ToScheduler) -> None:
    body = _encode(message)
    writer.write(LENGTH.pack(len(body)) + body)


async def read_message(reader: asyncio.StreamReader) -> bytes:
    """EOFError: the other process is gone."""
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > MAX_BYTES:
        raise EOFError
    return await reader.readexactly(length)
