"""Encrypt environment values that are marked secret, and decrypt them when their process is started.

In:    the plain values of a workload.   Out: sealed values, which are all that is stored anywhere.
Never: writes a plain value, or opens one for another workload or variable than it was sealed for.

AES-256-GCM; the name of the workload and of the variable are associated data. The key is KAIWO_HOME/secret-key, apart
from state.db, so that a copy of the state or of a backup reveals nothing.
"""

import base64
import binascii
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kaiwo.model.errors import ClusterError, ConfigError

KEY_FILE = "secret-key"
_VERSION = "v1:"
_NONCE_BYTES, _KEY_BYTES = 12, 32


class SecretValues:
    def __init__(self, home: Path) -> None:
        self._path = home / KEY_FILE

    def seal(self, workload: str, values: Mapping[str, str]) -> dict[str, str]:
        """The values as they may be stored. The first time, a key is made."""
        cipher = self._cipher(self._read() or self._make())
        sealed = {}
        for name, value in values.items():
            nonce = os.urandom(_NONCE_BYTES)
            data = nonce + cipher.encrypt(nonce, value.encode("utf-8", "surrogateescape"), _bound_to(workload, name))
            sealed[name] = _VERSION + base64.b64encode(data).decode()
        return sealed

    def unseal(self, workload: str, sealed: Mapping[str, str]) -> dict[str, str]:
        """The plain values, for the environment of a process that starts now."""
        if not sealed:
            return {}
        key = self._read()
        if key is None:
            raise ClusterError(
                f"the key of its secret values is gone: {self._path} does not exist; put it back from where you keep "
                f"it, or cancel {workload} and submit it again"
            )
        cipher, values = self._cipher(key), {}
        for name, text in sealed.items():
            values[name] = _open(cipher, workload, name, text, self._path)
        return values

    def are_same(self, workload: str, sealed: Mapping[str, str], others: Mapping[str, str]) -> bool:
        """Whether two sets of sealed values hold the same plain ones."""
        return sealed.keys() == others.keys() and self.unseal(workload, sealed) == self.unseal(workload, others)

    def _read(self) -> bytes | None:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ClusterError(f"the key of secret values, {self._path}, cannot be read: {error.strerror}") from error
        with os.fdopen(file, "rb") as content:
            status = os.fstat(content.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise ClusterError(
                    f"the key of secret values, {self._path}, is not a file that only you can read; check who could "
                    f"read it, then: chmod 600 {self._path}"
                )
            text = content.read(1000)
        try:
            key = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != _KEY_BYTES:
            raise ClusterError(
                f"the key of secret values, {self._path}, is damaged; put it back from where you keep it, or remove it "
                "and submit the workloads with secret values again"
            )
        return key

    def _make(self) -> bytes:
        """Whole and flushed before anything is sealed with it."""
        key = os.urandom(_KEY_BYTES)
        temporary = self._path.with_name(f".{KEY_FILE}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as content:
                content.write(base64.b64encode(key) + b"\n")
                content.flush()
                os.fsync(content.fileno())
            os.replace(temporary, self._path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            way_out = "make room, or make the folder writable"
            raise ClusterError(f"the key {self._path} cannot be written: {error.strerror}; {way_out}") from error
        return key

    def _cipher(self, key: bytes) -> Any:
        """Imported here: only secret values need the package, and it takes 20 ms."""
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise ConfigError(
                f"secret values need the package cryptography ({error}); pip install 'kaiwo[secrets]'", "secretEnv"
            ) from error
        return AESGCM(key)


def _bound_to(workload: str, name: str) -> bytes:
    return f"kaiwo-secret-env\0{workload}\0{name}".encode()


def _open(cipher: Any, workload: str, name: str, text: str, path: Path) -> str:
    from cryptography.exceptions import InvalidTag

    try:
        data = base64.b64decode(text.removeprefix(_VERSION), validate=True)
        plain: bytes = cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _bound_to(workload, name))
    except (InvalidTag, binascii.Error, ValueError):
        raise ClusterError(
            f"the secret value {name} cannot be read: {path} is not the key with which it was stored; put that key "
            f"back, or cancel {workload} and submit it again"
        ) from None
    return plain.decode("utf-8", "surrogateescape")
