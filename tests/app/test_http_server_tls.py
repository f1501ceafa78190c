"""HTTPS: served with a certificate, known by it to the command line, and refused in a sentence when it cannot be."""

import asyncio
import json
import ssl
from pathlib import Path

import httpx
import pytest

from kaiwo.app.http_server import Tls, check_tls, serve
from kaiwo.cli.client.api_client import NoServerError
from kaiwo.cli.client.find_server import ServerLocation, connect
from kaiwo.model.errors import ConfigError
from tests.devices.agent.report_receiver import make_certificate


async def app(scope: dict, receive: object, send: object) -> None:  # type: ignore[type-arg]
    if scope["type"] == "lifespan":
        await receive()  # type: ignore[operator]
        await send({"type": "lifespan.startup.complete"})  # type: ignore[operator]
        await receive()  # type: ignore[operator]
        await send({"type": "lifespan.shutdown.complete"})  # type: ignore[operator]
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})  # type: ignore[operator]


def test_the_command_line_knows_its_own_kaiwo_by_its_certificate_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path, "kaiwo.example")
    other = make_certificate(tmp_path, "localhost")
    for name in ("KAIWO_SERVER", "KAIWO_TOKEN", "KAIWO_CA_FILE"):
        monkeypatch.delenv(name, raising=False)

    async def look() -> None:
        server, url = await serve(app, "127.0.0.1", 0, str(tmp_path), tls=Tls(str(certificate)))
        try:
            assert url.startswith("https://127.0.0.1:")
            file = json.loads((tmp_path / "server.json").read_bytes())
            assert file["ca"] == str(certificate)
            place = ServerLocation(server=url, home=str(tmp_path))
            assert await asyncio.to_thread(connect(place).get, "/") == b"https"
            (tmp_path / "server.json").write_text(json.dumps({**file, "ca": str(other)}))
            with pytest.raises(NoServerError, match="certificate"):
                await asyncio.to_thread(connect(place).get, "/")
            monkeypatch.setenv("KAIWO_CA_FILE", str(certificate))
            with pytest.raises(NoServerError, match=r"(?i)ip address mismatch|certificate"):
                await asyncio.to_thread(connect(ServerLocation(server=url)).get, "/")
            with pytest.raises(httpx.ConnectError):
                async with httpx.AsyncClient(verify=ssl.create_default_context()) as client:
                    await client.get(url)
        finally:
            await server.stop()

    asyncio.run(look())


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "No such file"), ("", "cannot be used for TLS"), ("-----BEGIN CERTIFICATE-----\nAAAA\n", "cannot be used")],
)
def test_files_that_are_no_certificate_are_named(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "a.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=says):
        check_tls(Tls(str(path)))


def test_a_key_alone_is_of_no_use(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --tls-cert too"):
        check_tls(Tls("", str(tmp_path)))
