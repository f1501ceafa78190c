"""What floods of connections do to a running `kaiwo up`: 10,000 a minute of each kind, on the cores that it also uses.

In:    the shipped command as a process, and an attacker as another.   Out: the lag of its event loop, how long the
       owner's `kaiwo status` takes, whether a job that is submitted during the flood runs, memory and size of the log.
Never: gives the attacker a machine of his own. `--seconds N` is the length of each flood.
"""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TARGETS = {"lag_p99_ms": 50.0, "status_worst_s": 1.0, "memory_mib": 600.0, "log_kb": 1000.0}
WITH_TOKEN = ("bodies-with-token", "slow-readers", "streams")
PLAIN = ("silent", "requests", "bodies", "bodies-with-token", "slow-readers", "streams")
CLI = [sys.executable, "-m", "kaiwo.cli.main"]


class Product:
    """A real `kaiwo up`."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        self.env = {**{key: value for key, value in os.environ.items() if not key.startswith("KAIWO_")},
                    "KAIWO_HOME": str(home)}  # fmt: skip
        self.log = home.with_name("log")
        with self.log.open("w") as log:
            command = [*CLI, "up", "--port", "0", "--nodes", "8", *options]
            self.process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        found = re.search(r"://127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        assert found, self.log.read_text()
        self.port = int(found[1])
        self.token = (home / "token").read_text().strip()

    def run(self, *words: str) -> float:
        """How many seconds a command took."""
        began = time.perf_counter()
        subprocess.run([*CLI, *words], env=self.env, check=True, stdout=subprocess.DEVNULL, timeout=120)
        return time.perf_counter() - began

    def metrics(self) -> dict[str, float]:
        """As the owner reads them, through the socket."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.home / "api.sock"))
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.token}"})
        text = connection.getresponse().read().decode()
        connection.close()
        return {name: float(value) for name, value in re.findall(r"^(kaiwo_\S+) (\S+)$", text, re.M)}

    def memory_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+)", status)
        return int(found[1]) / 1024 if found else 0.0

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def flood(product: Product, kind: str, seconds: float) -> dict[str, Any]:
    token = product.token if kind in WITH_TOKEN else ""
    before = product.metrics()
    command = [sys.executable, "-m", "bench._flood_attacker", kind, str(product.port), str(seconds), token]
    attacker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    status_s, lag_s, began = [], [], time.monotonic()
    time.sleep(min(seconds / 4, 5))
    job_s = product.run("submit", f"job-{kind}", "--gpus", "1", "--wait", "--", "true")
    while time.monotonic() - began < seconds - 1:
        status_s.append(product.run("status"))
        lag_s.append(product.metrics()['kaiwo_loop_lag_seconds{quantile="0.99"}'])
        time.sleep(0.5)
    attempts, _ = attacker.communicate(timeout=120)
    after = product.metrics()
    closed = {
        found[1]: round(value - before.get(name, 0.0))
        for name, value in after.items()
        if (found := re.fullmatch(r'kaiwo_connections_closed_total\{cause="(.*)"\}', name))
        and value > before.get(name, 0)
    }
    return {
        "attempts": attempts.strip(),
        "closed": closed,
        "lag_p99_ms": round(max(lag_s) * 1000, 1),
        "status_worst_s": round(max(status_s), 2),
        "job_s": round(job_s, 2),
        "memory_mib": round(product.memory_mib(), 1),
        "log_kb": round(product.log.stat().st_size / 1000, 1),
    }


def measure(seconds: float, kinds: tuple[str, ...]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        product = Product(Path(folder) / "home")
        try:
            result["quiet"] = {"status_worst_s": round(max(product.run("status") for _ in range(3)), 2)}
            for kind in kinds:
                result[kind] = flood(product, kind, seconds)
                print(f"{kind}: {result[kind]}", file=sys.stderr, flush=True)
        finally:
            product.stop()
    with tempfile.TemporaryDirectory() as folder:
        certificate = Path(folder) / "certificate.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", certificate, "-out",
             certificate.with_suffix(".crt")], check=True, capture_output=True)  # fmt: skip
        certificate.write_bytes(certificate.read_bytes() + certificate.with_suffix(".crt").read_bytes())
        product = Product(Path(folder) / "home", "--tls-cert", str(certificate))
        try:
            result["half-open-tls"] = flood(product, "half-open-tls", seconds)
        finally:
            product.stop()
    return result


def main() -> int:
    seconds = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 60.0
    result = measure(seconds, PLAIN)
    missed = [
        f"{kind}: {name} is {figures[name]}, the target is below {target:g}"
        for kind, figures in result.items()
        for name, target in TARGETS.items()
        if figures.get(name, 0) >= target
    ]
    print(json.dumps(result) if "--json" in sys.argv else json.dumps(result, indent=2))
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
