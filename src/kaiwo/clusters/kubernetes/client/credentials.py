"""Credentials for an API server (fixed, a token file or an exec plugin), and how to reach and trust that server.

Never: turns verification off unless the kubeconfig says so explicitly, or logs a secret.
"""

import asyncio
import os
import ssl
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from kaiwo.model.errors import ClusterError, ConfigError

REREAD_S = 60.0  # a projected token lives at least ten minutes, and is replaced at four fifths of that
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EXEC_TIMEOUT_S = 30.0
EARLY_S = 30.0  # a plugin's credential is replaced this long before it expires


class Credential(NamedTuple):
    token: str = ""
    certificate: bytes = b""  # PEM
    key: bytes = b""
    expires_s: float = float("inf")  # wall-clock time


class CredentialSource(Protocol):
    async def get(self, refused: Credential | None = None) -> Credential:
        """The credential to use now. `refused`: the server rejected this one, so a fresh one is needed."""


class FixedCredential:
    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def get(self, refused: Credential | None = None) -> Credential:
        return self._credential


class TokenFile:
    """A token in a file that the kubelet or another program replaces from time to time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._credential = Credential()
        self._read_at = float("-inf")

    async def get(self, refused: Credential | None = None) -> Credential:
        if refused is not None or time.monotonic() - self._read_at > REREAD_S:
            self._credential = Credential(await asyncio.to_thread(_read_token, self._path))
            self._read_at = time.monotonic()
        return self._credential


class EnvVariable(msgspec.Struct):
    name: str
    value: str


class ExecSpec(msgspec.Struct, rename="camel"):
    """What a kubeconfig says about an exec plugin: a program that cloud providers use to issue credentials."""

    command: str
    args: list[str] | None = None
    env: list[EnvVariable] | None = None
    api_version: str = EXEC_VERSIONS[0]
    install_hint: str = ""
    provide_cluster_info: bool = False


class _Issued(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _Issued


class ExecPlugin:
    """Runs the program, without our standard input, whenever its last credential has expired or was refused."""

    def __init__(self, spec: ExecSpec, folder: Path, cluster: dict[str, object]) -> None:
        if spec.api_version not in EXEC_VERSIONS:
            raise ConfigError(
                f"the exec plugin {spec.command} speaks {spec.api_version}; one of {', '.join(EXEC_VERSIONS)} is "
                "needed",
                "exec.apiVersion",
            )
        # A command with a slash is relative to the kubeconfig.
        self._command = str(folder / spec.command) if "/" in spec.command else spec.command
        self._spec, self._cluster = spec, cluster
        self._credential: Credential | None = None
        self._running: asyncio.Task[Credential] | None = None

    async def get(self, refused: Credential | None = None) -> Credential:
        """One run at a time. When a caller gives up early, the run continues, and the next caller gets its result."""
        known = self._credential
        if known is not None and known.expires_s - EARLY_S >= time.time() and known is not refused:
            return known
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="kaiwo-exec-plugin")
            self._running.add_done_callback(_retrieve_exception)
        self._credential = await asyncio.shield(self._running)
        return self._credential

    async def _run(self) -> Credential:
        env = os.environ | {item.name: item.value for item in self._spec.env or ()}
        info = {"interactive": False} | ({"cluster": self._cluster} if self._spec.provide_cluster_info else {})
        request = {"kind": "ExecCredential", "apiVersion": self._spec.api_version, "spec": info}
        env["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(request).decode()
        try:
            process = await asyncio.create_subprocess_exec(
                self._command,
                *(self._spec.args or ()),
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"; {self._spec.install_hint}" if self._spec.install_hint else ""
            raise ConfigError(
                f"the exec plugin {self._command} cannot be run ({error.strerror}){hint}", "exec"
            ) from error
        try:
            async with asyncio.timeout(EXEC_TIMEOUT_S):
                output, stderr = await process.communicate()
        except TimeoutError:
            raise ClusterError(f"the exec plugin {self._command} gave no answer in {EXEC_TIMEOUT_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            last = stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it printed no error"]
            raise ClusterError(f"the exec plugin {self._command} ended with {process.returncode}: {last[0][:200]}")
        return self._read(output)

    def _read(self, output: bytes) -> Credential:
        try:
            issued = msgspec.json.decode(output, type=_ExecCredential).status
        except msgspec.DecodeError as error:
            raise ClusterError(f"the exec plugin {self._command} did not print an ExecCredential ({error})") from None
        if not issued.token and not (issued.client_certificate_data and issued.client_key_data):
            raise ClusterError(f"the exec plugin {self._command} gave neither a token nor a certificate with its key")
        return Credential(
            issued.token,
            issued.client_certificate_data.encode(),
            issued.client_key_data.encode(),
            issued.expiration_timestamp.timestamp() if issued.expiration_timestamp else float("inf"),
        )


class Trust(NamedTuple):
    """How the server's identity is verified."""

    ca_file: str = ""
    ca_data: bytes = b""  # PEM; takes precedence over the file
    is_insecure: bool = False
    server_name: str = ""  # in the certificate, where it differs from the address

    def context(self, credential: Credential) -> ssl.SSLContext:
        """Built again for each connection pool, so that a replaced CA file takes effect."""
        context = ssl.create_default_context()
        if self.is_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca_data:
            context = ssl.create_default_context(cadata=self.ca_data.decode())
        elif self.ca_file:
            context = ssl.create_default_context(cafile=self.ca_file)
        if credential.certificate:
            _load_certificate(context, credential)
        return context


class ClusterAccess(NamedTuple):
    """Everything that is needed to talk to one cluster."""

    server: str
    trust: Trust
    source: CredentialSource
    namespace: str = "default"
    name: str = ""  # of the context, for messages


def _read_token(path: str) -> str:
    try:
        token = Path(path).read_text().strip()
    except OSError as error:
        raise ConfigError(f"the token file {path} cannot be read ({error.strerror})", "tokenFile") from error
    if not token:
        raise ConfigError(f"the token file {path} is empty", "tokenFile")
    return token


def _load_certificate(context: ssl.SSLContext, credential: Credential) -> None:
    """OpenSSL reads certificates only from files; this one is removed at once."""
    descriptor, path = tempfile.mkstemp(prefix="kaiwo-", suffix=".pem")  # readable only by us
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(credential.certificate + b"\n" + credential.key)
        context.load_cert_chain(path)
    except ssl.SSLError as error:
        message = f"the client certificate cannot be used ({error.reason or error})"
        raise ConfigError(message, "client-certificate") from error
    finally:
        os.unlink(path)


def _retrieve_exception(run: asyncio.Task[Credential]) -> None:
    """Every caller may have given up; asyncio would then log an exception that was never retrieved."""
    if not run.cancelled():
        run.exception()
