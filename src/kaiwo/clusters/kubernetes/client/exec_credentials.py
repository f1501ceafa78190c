"""Credentials from an exec plugin: a program that a kubeconfig names, as cloud providers use it.

In:    the `exec` part of a kubeconfig user.   Out: a token or a client certificate, kept until it expires.
Never: runs the program while a credential of its is still good, or gives it our standard input.
"""

import asyncio
import os
import time
from datetime import datetime
from pathlib import Path

import msgspec

from kaiwo.clusters.kubernetes.client.credentials import Credential
from kaiwo.model.errors import ClusterError, ConfigError

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
TIMEOUT_S = 30.0
EARLY_S = 30.0  # a credential is replaced so long before it expires


class Variable(msgspec.Struct):
    """One environment variable."""

    name: str
    value: str


class ExecSpec(msgspec.Struct, rename="camel"):
    """What a kubeconfig says about the program."""

    command: str
    args: list[str] | None = None
    env: list[Variable] | None = None
    api_version: str = VERSIONS[0]
    install_hint: str = ""
    provide_cluster_info: bool = False


class _Issued(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Answer(msgspec.Struct):
    status: _Issued


class ExecPlugin:
    """Runs the program when a credential is needed."""

    def __init__(self, spec: ExecSpec, folder: Path, cluster: dict[str, object]) -> None:
        if spec.api_version not in VERSIONS:
            raise ConfigError(
                f"the exec plugin {spec.command} speaks {spec.api_version}; one of {', '.join(VERSIONS)} is needed",
                "exec.apiVersion",
            )
        # A command with a slash is meant relative to the kubeconfig.
        self._command = str(folder / spec.command) if "/" in spec.command else spec.command
        self._spec, self._cluster = spec, cluster
        self._credential: Credential | None = None
        self._running: asyncio.Task[Credential] | None = None

    async def get(self, refused: Credential | None = None) -> Credential:
        """One run at a time. Who asks may have less patience than the program: the run goes on for the next one, so
        that in the end somebody is told how long it gave no answer."""
        held = self._credential
        if held is not None and held.expires_s - EARLY_S >= time.time() and held is not refused:
            return held
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="kaiwo-exec-plugin")
            self._running.add_done_callback(_look_at)
        self._credential = await asyncio.shield(self._running)
        return self._credential

    async def _run(self) -> Credential:
        env = os.environ | {item.name: item.value for item in self._spec.env or ()}
        info = {"interactive": False} | ({"cluster": self._cluster} if self._spec.provide_cluster_info else {})
        ask = {"kind": "ExecCredential", "apiVersion": self._spec.api_version, "spec": info}
        env["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(ask).decode()
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
            output, complaint = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
        except TimeoutError:
            raise ClusterError(f"the exec plugin {self._command} gave no answer in {TIMEOUT_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            said = complaint.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise ClusterError(f"the exec plugin {self._command} ended with {process.returncode}: {said[0][:200]}")
        return self._read(output)

    def _read(self, output: bytes) -> Credential:
        try:
            issued = msgspec.json.decode(output, type=_Answer).status
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


def _look_at(run: asyncio.Task[Credential]) -> None:
    """Nobody may be left who asks how it went."""
    if not run.cancelled():
        run.exception()
