"""Find the running Kaiwo and the token for it, by --server, --home, the environment or the home folder's server.json.

The Kaiwo of a home folder is reached through its socket there, which only the owner of the folder can make.
Never: sends the token of this machine's Kaiwo to another machine, or any token to a user who is not trusted.
"""

import contextlib
import os
from urllib.parse import urlsplit

import msgspec

from kaiwo.app.options import SOCKET, find_home
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
    def saved_tokens_file(self) -> str:
        return os.path.join(self.home_path, "server-tokens.json")

    @property
    def token_file(self) -> str:
        return os.path.join(self.home_path, "token")


def read_saved_tokens(location: ServerLocation) -> dict[str, str]:
    """The tokens that `kaiwo login --token` saved, by the address of the server."""
    try:
        with open(location.saved_tokens_file, "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def save_token(location: ServerLocation, url: str, token: str) -> None:
    """Readable by yourself alone."""
    from pathlib import Path

    from kaiwo.api.security.token_file import write_private

    os.makedirs(location.home_path, mode=0o700, exist_ok=True)
    saved = read_saved_tokens(location) | {url: token}
    write_private(Path(location.saved_tokens_file), msgspec.json.encode(saved).decode())


def connect(location: ServerLocation, timeout_s: float = 30) -> ApiClient:
    """The server that --server or KAIWO_SERVER names, else the one that runs in this home folder."""
    folder, is_home = "", False
    if url := location.server or os.environ.get("KAIWO_SERVER", ""):
        url_source = "--server" if location.server else "KAIWO_SERVER"
        url = _check_url(url, url_source)
        pinned = _pinned_certificate(location, url)
    else:
        file, is_home = read_server_file(location), True
        url_source, pinned = location.server_file, file.ca
        url = _check_url(file.url, url_source)
        # A Kaiwo of an older version has no socket; then its port must belong to a trusted user.
        folder = location.home_path if os.path.exists(os.path.join(location.home_path, SOCKET)) else ""
    token, token_source, owner = _token(location, url, is_home or bool(pinned))
    trust = ServerTrust(os.environ.get("KAIWO_CA_FILE", ""), pinned, trusted_users(owner))
    return ApiClient(url, token, url_source, timeout_s, token_source, trust, folder)


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


def _token(location: ServerLocation, url: str, is_home: bool) -> tuple[str, str, int | None]:
    """The token, where it is from, and the user who owns that file."""
    if token := os.environ.get("KAIWO_TOKEN", ""):
        return token, "KAIWO_TOKEN", None
    if token := read_saved_tokens(location).get(url, ""):
        return token, location.saved_tokens_file, None
    host = urlsplit(url).hostname or ""
    if not (is_home or host in LOOPBACK or host.startswith("127.")):
        return "", "", None
    try:
        with open(location.token_file, encoding="ascii", errors="replace") as file:
            return file.readline().strip(), location.token_file, os.fstat(file.fileno()).st_uid
    except OSError:
        return "", "", None


def trusted_users(owner: int | None) -> frozenset[int]:
    """Yourself, root, the owner of the token's file, who knows it already, and whom KAIWO_SERVER_USER names."""
    users = {0, os.geteuid()} if owner is None else {0, os.geteuid(), owner}
    if name := os.environ.get("KAIWO_SERVER_USER", ""):
        import pwd

        try:
            users.add(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise ConfigError(f"KAIWO_SERVER_USER: there is no user '{name}' on this machine; unset it") from None
    return frozenset(users)


def _pinned_certificate(location: ServerLocation, url: str) -> str:
    """The certificate of the Kaiwo in this home folder, if the URL is its own."""
    try:
        file = read_server_file(location)
    except NoServerError:
        return ""
    return file.ca if file.url.rstrip("/") == url else ""
