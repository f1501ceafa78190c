"""The token file: anyone who can read it may write through this API.

Never: uses a token that others could have read, or leaves a half-written file.
"""

import os
import re
import secrets
import stat
from pathlib import Path

from kaiwo.model.errors import ClusterError, ConfigError

FILE, AGENT_FILE, METRICS_FILE = "token", "agent-token", "metrics-token"
_GOOD = re.compile(r"[A-Za-z0-9_-]{32,200}")


def read_or_make_token(home: str, name: str = FILE) -> tuple[str, str]:
    """The token, and a sentence when it had to be replaced."""
    folder = Path(home)
    path = folder / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = _read(path)
        if found is None:
            return _make(path), ""
        token, is_private = found
        if not is_private:
            return _make(path), f"{path} could be read by other users, so it holds a new token now"
        if not _GOOD.fullmatch(token):
            return _make(path), f"{path} held no usable token, so it holds a new one now"
        return token, ""
    except OSError as error:
        way_out = "make the folder writable, or name another one with KAIWO_HOME"
        raise ClusterError(f"the token file {path} cannot be used: {error.strerror}; {way_out}") from error


def read_given_token(path: str) -> str:
    """A token from a file that others manage, such as a mounted secret: its permissions are theirs."""
    try:
        token = Path(path).read_text("ascii", "replace").strip()
    except OSError as error:
        raise ConfigError(f"the token file {path} cannot be read: {error.strerror}; name another one") from error
    if not _GOOD.fullmatch(token):
        raise ConfigError(f"{path} holds no usable token; write 32 to 200 letters, digits, '-' and '_' into it")
    return token


def _read(path: Path) -> tuple[str, bool] | None:
    """The token and whether only its owner can read it; None when there is no file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as content:
        status = os.fstat(content.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise ClusterError(f"{path} is not a file of yours; remove it, or name another folder with KAIWO_HOME")
        return content.read(1000).decode("ascii", "replace").strip(), not status.st_mode & 0o077


def _make(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    write_private(path, token + "\n")
    return token


def write_private(path: Path, text: str, is_flushed: bool = False) -> None:
    """Replace the whole file at once, readable by its owner alone. `is_flushed`: it survives a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "w") as content:
            content.write(text)
            if is_flushed:
                content.flush()
                os.fsync(content.fileno())
        os.replace(temporary, path)
        if is_flushed:
            _flush_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _flush_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
