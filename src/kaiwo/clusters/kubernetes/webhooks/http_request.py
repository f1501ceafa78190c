"""Read the requests of an API server from a connection: HTTP/1.1, with a bound on every part.

Raises RefusedRequestError for what is refused with an answer, and EOFError when the other end has closed it.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from kaiwo.clusters.kubernetes.webhooks.connection_limits import BodyMemory, ServerLimits

PIECE = 64 << 10
LENGTH_DIGITS = 15
CHUNK_LINE = 64  # the size of a chunk in hexadecimal, and an extension that nobody uses
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class RefusedRequestError(Exception):
    """A request that is refused, after which the connection ends."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class RequestHead(NamedTuple):
    method: str
    path: str
    length: int  # of the body; -1: it comes in chunks
    keeps_open: bool
    awaits_continue: bool


async def read_head(reader: asyncio.StreamReader, first: bytes, limits: ServerLimits) -> RequestHead:
    """`first`: the byte of it that was read already."""
    try:
        raw = first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise RefusedRequestError(431, f"the head of a request has at most {limits.head_bytes >> 10} KiB") from error
    lines = raw.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise RefusedRequestError(400, "this is not an HTTP/1.1 request")
    fields: dict[str, str] = {}
    for line in filter(None, lines[1:]):
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or not name or name != name.strip() or (key in fields and key == "content-length"):
            raise RefusedRequestError(400, "a header field cannot be read")
        fields[key] = value.strip()
    keeps_open = words[2] == "HTTP/1.1" and fields.get("connection", "").lower() != "close"
    return RequestHead(
        words[0],
        words[1].partition("?")[0],
        _length(fields, limits),
        keeps_open,
        fields.get("expect", "").lower() == "100-continue",
    )


def _length(fields: dict[str, str], limits: ServerLimits) -> int:
    coding, text = fields.get("transfer-encoding", "").lower(), fields.get("content-length", "")
    if coding:
        if coding != "chunked" or text:
            raise RefusedRequestError(501 if not text else 400, "a body comes with its length, or in chunks")
        return -1
    if text and not (text.isascii() and text.isdigit() and len(text) <= LENGTH_DIGITS):
        raise RefusedRequestError(400, "Content-Length is not a number")
    check_size(int(text or 0), limits)
    return int(text or 0)


def check_size(size: int, limits: ServerLimits) -> None:
    if size > limits.body_bytes:
        raise RefusedRequestError(413, f"a review has at most {limits.body_bytes} bytes")


class ReviewBody:
    """A body that is being read; its bytes count against the memory until `close`."""

    def __init__(self, memory: BodyMemory, address: str, limits: ServerLimits) -> None:
        self._memory, self._address, self._limits = memory, address, limits
        self._parts: list[bytes] = []
        self._size = 0

    async def read(self, reader: asyncio.StreamReader, length: int) -> bytes:
        pieces = _pieces(reader, length) if length >= 0 else _chunks(reader, self._limits)
        async for piece in pieces:
            check_size(self._size + len(piece), self._limits)
            if not self._memory.take(self._address, self._size, len(piece)):
                raise RefusedRequestError(503, "too many large reviews at once; try again")
            self._size += len(piece)
            self._parts.append(piece)
        return b"".join(self._parts)

    def close(self) -> None:
        self._parts.clear()
        self._memory.give_back(self._address, self._size)


async def _pieces(reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
    while length:
        piece = await reader.read(min(length, PIECE))
        if not piece:
            raise EOFError
        length -= len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader, limits: ServerLimits) -> AsyncIterator[bytes]:
    while size := await _chunk_size(reader, limits):
        async for piece in _pieces(reader, size):
            yield piece
        if await reader.readexactly(2) != b"\r\n":
            raise RefusedRequestError(400, "a chunk is longer than its size")
    if await reader.readexactly(2) != b"\r\n":
        raise RefusedRequestError(400, "trailers are not read")


async def _chunk_size(reader: asyncio.StreamReader, limits: ServerLimits) -> int:
    line = (await reader.readuntil(b"\r\n"))[:CHUNK_LINE].partition(b";")[0].strip()
    try:
        size = int(line, 16)
    except ValueError as error:
        raise RefusedRequestError(400, "the size of a chunk cannot be read") from error
    if size < 0:
        raise RefusedRequestError(400, "the size of a chunk cannot be read")
    check_size(size, limits)
    return size


def write_answer(status: int, body: bytes, kind: str, keeps_open: bool) -> bytes:
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"Connection: {'keep-alive' if keeps_open else 'close'}\r\n\r\n"
    )
    return head.encode() + body
