"""Receivers of alerts on loopback: an HTTP server that answers as a test says, and a mail server that speaks SMTP."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any


class HttpReceiver:
    """Keeps what was posted. `answers`: status codes for the next requests; then 200."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[Any] = []
        self.asked = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        status = self.answers.pop(0) if self.answers else 200
        self.asked += 1
        if status == 200:
            self.paths.append(head[0].split()[1])
            self.headers.append(headers)
            self.bodies.append(json.loads(body))
        where = "Location: http://127.0.0.1:9/elsewhere\r\n" if status == 302 else ""
        writer.write(f"HTTP/1.1 {status} X\r\n{where}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def http_receiver(port: int = 0) -> AsyncIterator[HttpReceiver]:
    receiver = HttpReceiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", port)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield receiver
    finally:
        server.close()


class MailReceiver:
    """As much of SMTP as a client without encryption needs. `refuse`: addresses that it does not take."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], str]] = []  # recipients and text
        self.refuse: set[str] = set()
        self.lines: list[str] = []
        self.server = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(text: str) -> None:
            writer.write(f"{text}\r\n".encode())

        to: list[str] = []
        say("220 mail.test ESMTP")
        while line := (await reader.readline()).decode().strip():
            self.lines.append(line)
            verb = line.upper()
            if verb.startswith("EHLO"):
                say("250-mail.test\r\n250 8BITMIME")
            elif verb.startswith("RCPT TO"):
                address = line.partition("<")[2].partition(">")[0]
                if address in self.refuse:
                    say("550 unknown")
                else:
                    to.append(address)
                    say("250 ok")
            elif verb == "DATA":
                say("354 go on")
                text = (await reader.readuntil(b"\r\n.\r\n")).decode()
                self.mails.append((to, text.replace("\r\n", "\n")))
                to = []
                say("250 taken")
            elif verb == "QUIT":
                say("221 bye")
                break
            else:
                say("250 ok")
        await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def mail_receiver() -> AsyncIterator[MailReceiver]:
    receiver = MailReceiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.server = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield receiver
    finally:
        server.close()
