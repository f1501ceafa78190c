"""What a server says when it refuses, before the agent is done with its request.

In:    a socket and the first bytes that came.   Out: the answer's head and body, and its sentence.
Never: waits long for an answer that does not end, or keeps more of it than a page.
"""

import re
import socket
import time

import msgspec

MOST_ANSWER = 65_536
ANSWER_S = 2.0  # for the rest of an answer that has begun
_LENGTH = re.compile(rb"\r\nContent-Length: *(\d{1,6})", re.IGNORECASE)


class _Problem(msgspec.Struct):
    message: str


def whole_answer(sock: socket.socket, data: bytes) -> tuple[bytes, bytes]:
    """Head and body. They come in several pieces: over TLS each of them is a record of its own."""
    deadline = time.monotonic() + ANSWER_S
    while data and len(data) < MOST_ANSWER and not _is_whole(data) and (left_s := deadline - time.monotonic()) > 0:
        sock.settimeout(left_s)
        try:
            more = sock.recv(16_384)
        except OSError:  # what has come must do
            break
        if not more:
            break
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def in_words(status: str, body: bytes) -> str:
    """The server's own sentence, when there is one: it names the way out."""
    try:
        return f"{status}: {msgspec.json.decode(body, type=_Problem).message}"
    except msgspec.MsgspecError:
        return status


def _is_whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return bool(end and length) and len(body) >= int(length[1] if length else 0)
