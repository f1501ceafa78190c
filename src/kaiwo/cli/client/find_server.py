"""Find the running Kaiwo and the token for it, by --server, --home, the environment or the home folder's server.json.

Never: sends the token of this machine's Kaiwo to another machine.
"""

import contextlib
import os
from urllib.parse import urlsplit

import msgspec

from kaiwo.app.options import find_home
from kaiwo.cli.client.api_client import ApiClient, NoServerError
from kaiwo.cli.client.http_connection import ServerTrust
from kaiwo.model.errors import ConfigError

LOOPBACK = ("localhost", "::1")


class ServerFile(msgspec.Struct, frozen=True):
    """The server.json that `kaiwo up` writes."""

    url: str
    pid: int = 0
    ca: str = ""


class ServerLocation(msgspec.Struct, frozen=True):
    """The values of --server and --home; empty if not given."""

    server: str = ""
    home: str = ""

    @property
    def home_path(self) -> str:
        return os.path.abspath(os.path.expanduser(self.home)) if self.home else find_home(os.environ)

    @property
    def server_file(self) -> str:
        return os.path.join(self.home_path, "server.json")

    @property
    def token_file(self) -> str:
        return os.path.join(self.home_path, "token")


def connect(location: ServerLocation, timeout_s: float = 30) -> ApiClient:
    """The server that --server or KAIWO_SERVER names, else the one that runs in this home folder."""
    if url := location.server or os.environ.get("KAIWO_SERVER", ""):
        url_source, pinned = "--server" if location.server else "KAIWO_SERVER", ""
    else:
        file = read_server_file(location)
        url, url_source, pinned = file.url, location.server_file, file.ca
    url = _check_url(url, url_source)
    token, token_source = _token(location, url)
    trust = ServerTrust(os.environ.get("KAIWO_CA_FILE", ""), pinned)
    return ApiClient(url, token, url_source, timeout_s, token_source, trust)


def read_server_file(location: ServerLocation) -> ServerFile:
    path = location.server_file
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=ServerFile)
    except FileNotFoundError:
        raise NoServerError(f"no kaiwo is running (looked in {path})", "start one with: kaiwo up") from None
    except OSError as error:
        raise NoServerError(f"cannot read {path} ({error.strerror})", "check --home") from None
    except msgspec.DecodeError:
        raise NoServerError(f"{path} is damaged", "restart kaiwo with: kaiwo up") from None


def _check_url(url: str, url_source: str) -> str:
    url = (url if "://" in url else f"http://{url}").rstrip("/")
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return url
    raise ConfigError(f"'{url}' in {url_source} is not an address; write it like http://127.0.0.1:7600")


def _token(location: ServerLocation, url: str) -> tuple[str, str]:
    if token := os.environ.get("KAIWO_TOKEN", ""):
        return token, "KAIWO_TOKEN"
    host = urlsplit(url).hostname or ""
    if not (host in LOOPBACK or host.startswith("127.") or _is_home_server(location, url)):
        return "", ""
    try:
        with open(location.token_file, encoding="ascii", errors="replace") as file:
            return file.readline().strip(), location.token_file
    except OSError:
        return "", ""


def _is_home_server(location: ServerLocation, url: str) -> bool:
    try:
        return read_server_file(location).url.rstrip("/") == url
    except NoServerError:
        return False
