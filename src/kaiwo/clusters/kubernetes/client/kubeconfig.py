"""Read a kubeconfig, or the files that Kubernetes gives to a pod, to find out how to reach the cluster.

Never: guesses a server. A ConfigError names the file, the field and the allowed values.
"""

import base64
import binascii
import os
from pathlib import Path

import msgspec
import yaml

from kaiwo.clusters.kubernetes.client.credentials import (
    ClusterAccess,
    Credential,
    CredentialSource,
    ExecPlugin,
    ExecSpec,
    FixedCredential,
    TokenFile,
    Trust,
)
from kaiwo.model.errors import ConfigError

POD_FILES = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class _Server(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    exec: ExecSpec | None = None
    username: str = ""
    auth_provider: msgspec.Raw | dict[str, object] | None = None


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedServer(msgspec.Struct):
    name: str
    cluster: _Server


class _NamedUser(msgspec.Struct):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedServer] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


def find_access(kubeconfig: str = "", context: str = "", pod_files: Path = POD_FILES) -> ClusterAccess:
    """The named file; else KUBECONFIG; else the pod's own files; else ~/.kube/config."""
    path = kubeconfig or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    if not path and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(pod_files)
    return read_kubeconfig(Path(path or Path.home() / ".kube" / "config"), context)


def in_cluster(files: Path = POD_FILES) -> ClusterAccess:
    """Access with the pod's service account, whose token is replaced while we run."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (files / "token").is_file():
        raise ConfigError(
            f"this is not a pod with a service account ({files} or KUBERNETES_SERVICE_HOST is missing); name a "
            "kubeconfig with --kubeconfig",
            "--kubeconfig",
        )
    url_host = f"[{host}]" if ":" in host else host
    namespace = (files / "namespace").read_text().strip() if (files / "namespace").is_file() else "default"
    trust = Trust(ca_file=str(files / "ca.crt"))
    _check_trust(trust, "this pod's service account")
    return ClusterAccess(f"https://{url_host}:{port}", trust, TokenFile(str(files / "token")), namespace, "in-cluster")


def read_kubeconfig(path: Path, context: str = "") -> ClusterAccess:
    """One context of a kubeconfig; by default the current one."""
    config = _decode(path)
    name = context or config.current_context
    chosen = next((item.context for item in config.contexts or () if item.name == name), None)
    if chosen is None:
        known = ", ".join(item.name for item in config.contexts or ()) or "none"
        raise ConfigError(f"{path} has no context {name!r}; it has: {known}", "current-context")
    server = next((item.cluster for item in config.clusters or () if item.name == chosen.cluster), None)
    if server is None or not server.server:
        raise ConfigError(
            f"{path}: the context {name} names the cluster {chosen.cluster!r}, which has no server", "clusters"
        )
    user = next((item.user for item in config.users or () if item.name == chosen.user), None)
    if user is None and chosen.user:
        raise ConfigError(f"{path}: the context {name} names the user {chosen.user!r}, which does not exist", "users")
    trust = Trust(
        _resolve_path(path, server.certificate_authority),
        _data(server.certificate_authority_data, path, "certificate-authority-data"),
        server.insecure_skip_tls_verify,
        server.tls_server_name,
    )
    source = _source(user or _User(), path, server)
    _check_trust(trust, str(path))
    return ClusterAccess(server.server.rstrip("/"), trust, source, chosen.namespace or "default", name)


def _decode(path: Path) -> _Kubeconfig:
    try:
        raw = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(
            f"the kubeconfig {path} cannot be read ({error.strerror}); name one with --kubeconfig", "--kubeconfig"
        ) from error
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", error)
        raise ConfigError(f"the kubeconfig {path} is not YAML ({problem})", "--kubeconfig") from error
    try:
        return msgspec.convert(raw, _Kubeconfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the kubeconfig {path} cannot be used: {error}", "--kubeconfig") from error


def _check_trust(trust: Trust, named_by: str) -> None:
    """Check before the first call: a missing file would look like a server that does not answer."""
    where = trust.ca_file if trust.ca_file and not trust.ca_data else "certificate-authority-data"
    try:
        trust.context(Credential())
    except (OSError, ValueError) as error:  # OpenSSL's errors are OSErrors
        reason = getattr(error, "strerror", "") or getattr(error, "reason", "") or str(error)
        raise ConfigError(
            f"{named_by} names the certificate authority {where}, which cannot be read ({reason}); correct the path, "
            "or write its certificate there",
            "certificate-authority",
        ) from error


def _source(user: _User, path: Path, server: _Server) -> CredentialSource:
    if user.username or user.auth_provider is not None:
        raise ConfigError(
            f"{path}: users.{'username' if user.username else 'auth-provider'} is not supported; use a token, a client "
            "certificate or an exec plugin",
            "users",
        )
    if user.exec is not None:
        return ExecPlugin(user.exec, path.parent, {"server": server.server})
    if user.token_file and not user.token:
        return TokenFile(_resolve_path(path, user.token_file))
    certificate = _data(user.client_certificate_data, path, "client-certificate-data")
    certificate = certificate or _file(path, user.client_certificate)
    key = _data(user.client_key_data, path, "client-key-data") or _file(path, user.client_key)
    if bool(certificate) != bool(key):
        raise ConfigError(f"{path}: a client certificate needs its key, and a key its certificate", "users")
    return FixedCredential(Credential(user.token, certificate, key))


def _resolve_path(path: Path, name: str) -> str:
    """Paths in a kubeconfig are relative to it."""
    return str(path.parent / name) if name else ""


def _file(path: Path, name: str) -> bytes:
    if not name:
        return b""
    try:
        return Path(_resolve_path(path, name)).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} names {name}, which cannot be read ({error.strerror})", "users") from error


def _data(text: str, path: Path, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ConfigError(f"{path}: {field} is not base64 ({error})", field) from error
