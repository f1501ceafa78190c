"""Start, stop and hurt a real control plane on loopback.

In:    the programs that build.sh made, and a folder.   Out: an API server, kubeconfigs for it, and the processes.
Never: listens on anything but 127.0.0.1, or leaves a process behind.
"""

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.controlplane.certificates import Authority
from tests.waiting import PATIENCE_S

HERE = Path(__file__).resolve().parent
TOKEN = "a-token-for-the-tests"
ADMIN = "admin"
TRIES = 5  # of a command that meets the write of somebody else
# The PodGroup and Workload API is alpha in this version: it takes a gate, and its version must be switched on.
POD_GROUPS = (
    "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
)


class MissingError(Exception):
    """The programs are not there; the message says what to do."""


def find_programs(*names: str) -> Path:
    """The folder with etcd, kube-apiserver and the others, and with these; MissingError where one is not built."""
    asked = subprocess.run([HERE / "build.sh", "--folder"], capture_output=True, text=True, check=True)
    folder = Path(asked.stdout.strip())
    for name in ("controlplane", *names):
        if not (folder / name).is_file():
            raise MissingError(f"the test control plane is not built ({folder / name} is missing); make controlplane")
    return folder


class Plane:
    """etcd and an API server; more programs can be started beside them."""

    def __init__(
        self,
        folder: Path,
        programs: Path,
        etcd_options: Sequence[str] = ("--unsafe-no-fsync",),
        server_options: Sequence[str] = (),
    ) -> None:
        self.folder, self.programs = folder, programs
        self._etcd_options, self._server_options = tuple(etcd_options), tuple(server_options)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port, self._etcd_port, self._peer_port = free_ports(3)
        self.server = f"https://127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        authority = Authority(folder)
        authority.serve()
        authority.user(ADMIN, "system:masters")
        authority.signing_key()
        (folder / "tokens.csv").write_text(f"{TOKEN},token-admin,1,system:masters\n")
        self.kubeconfig = self.write_kubeconfig(ADMIN)

    def start(self) -> None:
        """Until the API server is ready."""
        self.start_etcd()
        self.start_api_server()

    def start_etcd(self) -> None:
        etcd, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self.run(
            "etcd", "--name=test", f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=test={peer}", "--log-level=warn", *self._etcd_options,
        )  # fmt: skip

    def start_api_server(self) -> None:
        file = self.folder
        self.run(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", f"--secure-port={self.port}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--tls-cert-file={file / 'server.crt'}",
            f"--tls-private-key-file={file / 'server.key'}", f"--client-ca-file={file / 'ca.crt'}",
            f"--token-auth-file={file / 'tokens.csv'}", "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24", f"--service-account-key-file={file / 'accounts.key'}",
            f"--service-account-signing-key-file={file / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc", "--endpoint-reconciler-type=none",
            # Nobody makes service accounts and tokens here unless the controllers are started too.
            "--disable-admission-plugins=ServiceAccount", "--anonymous-auth=true", "--allow-privileged=true", "--v=0",
            *self._server_options,
        )  # fmt: skip
        self.wait_until_ready()

    def start_controllers(self, *options: str) -> None:
        """The controllers: Jobs get their pods, Deployments their ReplicaSets."""
        self.run(
            "kube-controller-manager", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            f"--root-ca-file={self.folder / 'ca.crt'}", *options,
        )  # fmt: skip

    def run(self, name: str, *options: str, program: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a program; what it says goes to NAME.log."""
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            process = subprocess.Popen(
                [program or self.programs / name, *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                # Ctrl-C in a terminal goes to us alone: we take the programs down in order.
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal; a deadly one is waited for."""
        process = self.processes[name]
        process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            process.wait(PATIENCE_S)
            del self.processes[name]

    def stop(self) -> None:
        """Take all of it down, the last first."""
        for name in reversed(list(self.processes)):
            process = self.processes[name]
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)
        self.processes.clear()

    def wait_until_ready(self) -> None:
        """Until /readyz says so."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(f"{self.server}/readyz", context=context, timeout=2).status == 200:
                    return
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended with {process.returncode}:\n{self.tail(name)}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"the API server is not ready after {PATIENCE_S:g} s:\n{self.tail('kube-apiserver')}"
                )
            time.sleep(0.05)

    def tail(self, name: str) -> str:
        """The last lines that a program wrote."""
        return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-15:])

    def write_kubeconfig(self, user: str, lines: str = "", server: str = "") -> Path:
        """For a user with a certificate, or with what `lines` (of YAML, below `user:`) say."""
        path = self.folder / f"{user}.kubeconfig"
        credentials = lines or f"client-certificate: {user}.crt\n    client-key: {user}.key"
        path.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n"
            f"clusters:\n- name: test\n  cluster:\n    server: {server or self.server}\n"
            "    certificate-authority: ca.crt\n"
            f"users:\n- name: {user}\n  user:\n    {credentials}\n"
            f"contexts:\n- name: test\n  context:\n    cluster: test\n    user: {user}\n"
        )
        return path

    def kubectl(self, *words: str, text: str | None = None, check: bool = True) -> str:
        """What a person would type, and repeat when somebody wrote the object between kubectl's read and its write."""
        for _ in range(TRIES):
            done = subprocess.run(
                [self.programs / "kubectl", f"--kubeconfig={self.kubeconfig}", *words],
                input=text, capture_output=True, text=True, timeout=PATIENCE_S,
            )  # fmt: skip
            if not (check and done.returncode):
                return done.stdout if check else done.stdout + done.stderr
            if "the object has been modified" not in done.stderr:
                break
        raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")


@contextlib.contextmanager
def running_plane(folder: Path, *server_options: str) -> Iterator[Plane]:
    """A control plane for the length of a block."""
    plane = Plane(folder, find_programs(), server_options=server_options)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on right now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
