"""Secrets are planted, everything is done with a real `kaiwo up`, and then every file and every answer is searched."""

import base64
import contextlib
import json
import re
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaiwo.api.application import API_ROUTES
from tests.cli.test_end_to_end import Product
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

OWN_FILES = ("token", "agent-token", "metrics-token")  # each holds one secret; only its owner can read it
PLANTED = {  # with characters that need quoting, so that other encodings are really different
    "flag": "pl4nted flag+value/with=all&kinds?of%characters",
    "environment": "pl4nted-from-the-callers-environment~~~/x",
    "file": "pl4nted in a file: ümläut+/=",
    "manifest": "pl4nted-in-a-manifest+and/more==",
    "garbage": "pl4nted-in-garbage-input//++",
}


class Searched:
    """A product whose every output is kept, with what it must never show."""

    def __init__(self, home: Path) -> None:
        self.secrets = dict(PLANTED)
        self.outputs: list[tuple[str, bytes]] = []
        self.product = Product(home)
        self.home = home
        for name in OWN_FILES:
            self.secrets[name] = (home / name).read_text().strip()

    def __call__(self, *args: str, given: str = "") -> str:
        done = self.product(*args, given=given)
        said = f"{done.out}\n{done.err}"
        typed = " ".join(args)
        self.outputs.append((f"kaiwo {args[0]}", said.encode()))
        assert "Traceback" not in said, typed
        return said

    def api(self, method: str, path: str, body: bytes | None = None, mime: str = "application/json") -> bytes:
        headers = {"Authorization": f"Bearer {self.secrets['token']}", "Content-Type": mime}
        request = urllib.request.Request(f"{self.product.url}{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found = answer.read(1 << 20) if "stream" not in path else answer.readline() + answer.readline()
        except urllib.error.HTTPError as error:
            found = error.read()
        self.outputs.append((f"{method} {path} {found[:300]!r}", found))
        return bytes(found)

    def leaks(self) -> list[str]:
        found = [
            f"{name} in the output of {source}"
            for name, forms in self._forms().items()
            for source, output in self.outputs
            if any(form in output for form in forms)
        ]
        for path in self.home.rglob("*"):
            if path.is_file() and not path.is_socket():
                content = path.read_bytes()
                for name, forms in self._forms().items():
                    if any(form in content for form in forms) and path.name != name:
                        found.append(f"{name} in {path.relative_to(self.home)}")
        return found

    def _forms(self) -> dict[str, list[bytes]]:
        return {name: _forms(secret) for name, secret in self.secrets.items()}


def _forms(secret: str) -> list[bytes]:
    """As it is, as JSON, base64 at each of the three offsets, and quoted for URLs."""
    plain = secret.encode()
    coded = []
    for offset in range(3):
        text = base64.b64encode(b"x" * offset + plain)
        coded.append(text[(0, 2, 3)[offset] : -4])
        coded.append(base64.urlsafe_b64encode(b"x" * offset + plain)[(0, 2, 3)[offset] : -4])
    quoted = [urllib.parse.quote(secret), urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret)]
    return [plain, json.dumps(secret)[1:-1].encode(), *coded, *(each.encode() for each in quoted)]


@pytest.fixture
def kaiwo(tmp_path: Path) -> Iterator[Searched]:
    searched = Searched(tmp_path / "home")
    yield searched
    if searched.product.up.poll() is None:
        searched.product.stop()


def test_planted_secrets_never_appear(kaiwo: Searched, tmp_path: Path) -> None:
    home = kaiwo.home
    kaiwo.product.env["FROM_HERE"] = PLANTED["environment"]
    file = tmp_path / "secrets.env"
    file.write_text(f"# mine\nIN_FILE={PLANTED['file']}\n")
    kaiwo(
        "submit", "job", "--secret-env", f"BY_FLAG={PLANTED['flag']}", "--secret-env", "FROM_HERE",
        "--secret-env-file", str(file), "--", "sh", "-c",
        # The process itself gets them; it shows only their length.
        'printf %s "$BY_FLAG$FROM_HERE$IN_FILE" | wc -c; sleep 600',
    )  # fmt: skip
    form = {"name": "fails", "secretEnv": {"IN_FORM": PLANTED["manifest"]}, "command": ["sh", "-c", "exit 3"]}
    manifest = json.dumps({**form, "retries": 1})
    assert "submitted" in kaiwo("submit", "-f", "-", given=manifest)
    kaiwo("wait", "job", "--for", "running", "--timeout", "60")
    kaiwo("wait", "fails", "--for", "failed", "--timeout", "60")
    assert "unchanged" in kaiwo("apply", "-f", "-", given=json.dumps({"name": "idle", **IDLE})) + kaiwo(
        "apply", "-f", "-", given=json.dumps({"name": "idle", **IDLE})
    )
    changed = {**IDLE, "secretEnv": {"IN_FORM": "another"}}
    assert "its secret environment" in kaiwo("apply", "-f", "-", given=json.dumps({"name": "idle", **changed}))
    length = sum(len(PLANTED[name].encode()) for name in ("flag", "environment", "file"))
    deadline = time.monotonic() + PATIENCE_S
    while str(length) not in kaiwo("logs", "job"):
        assert time.monotonic() < deadline, "the process has not got its values"
        time.sleep(0.1)
    described = kaiwo("describe", "workload", "job")
    assert "BY_FLAG (secret), FROM_HERE (secret), IN_FILE (secret)" in described
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            kaiwo.outputs.append((f"the arguments of process {path.parent.name}", path.read_bytes()))
    kaiwo("requeue", "fails")
    kaiwo("requeue", "job")
    for words in (
        ("why", "job"), ("describe", "workload", "job", "-o", "json"), ("describe", "workload", "fails", "-o", "yaml"),
        ("get", "workloads", "-o", "json"), ("get", "workloads", "-o", "wide"), ("get", "cycles"), ("status",),
        ("replay", "1"), ("backup",), ("backup", str(home / "copy.db")), ("audit", "-o", "wide"),
        ("audit", "--json"), ("audit", "verify"), ("doctor",), ("nodes",), ("share",), ("logs", "fails"), ("version",),
    ):  # fmt: skip
        kaiwo(*words)
    _send_garbage(kaiwo)
    for route in API_ROUTES:
        if route.method == "GET":
            path = route.path.replace("{namespace}", "default").replace("{name}", "job")
            query = "?view=workloads" if path == "/stream" else ""
            kaiwo.api("GET", f"/api/v1{path}{query}")
    for path in ("/metrics", "/openapi.json", "/healthz", "/readyz", "/", "/login?code=wrong"):
        kaiwo.api("GET", path)
    login = kaiwo.product("login").out  # prints a code, which is what it is for
    code = re.search(r"code=([\w-]+)", login)
    assert code is not None
    kaiwo.secrets["login code"] = code[1]
    kaiwo.secrets["login"] = json.loads(_exchange(kaiwo, code[1]))["token"]
    kaiwo.api("GET", "/api/v1/workloads")
    assert kaiwo.leaks() == []
    kaiwo.product.stop(signal.SIGKILL)
    kaiwo.product.start()
    for words in (("describe", "workload", "job"), ("logs", "job"), ("cancel", "job"), ("audit",)):
        kaiwo(*words)
    kaiwo.product.stop()
    assert kaiwo.leaks() == []
    planted = home / "planted"
    planted.write_text(urllib.parse.quote_plus(PLANTED["flag"]))
    assert kaiwo.leaks() == ["flag in planted"], "the search itself finds what is there"


IDLE = {"hold": True, "command": ["true"], "secretEnv": {"IN_FORM": PLANTED["manifest"]}}


def _send_garbage(kaiwo: Searched) -> None:
    """Mistakes around a secret: the message must not repeat it."""
    secret = PLANTED["garbage"]
    forms = [
        {"name": "x", "secretEnv": secret},
        {"name": "x", "secretEnv": [secret]},
        {"name": "x", "secretEnv": {"A": [secret]}},
        {"name": "x", "secretEnv": {"A": secret}, "gpus": "many"},
        {"name": "x", "secretEnv": {"A": secret}, "env": {"A": "1"}, "command": ["true"]},
        {"name": "x", "secretEnv": {"A": secret}},
        {"name": "x", "secretEnv": {"A": secret * 100_000}, "command": ["true"]},
        {"name": "x", "secretEnv": {"A": secret + "\x00"}, "command": ["true"]},
        {"name": "job", "secretEnv": {"A": secret}, "command": ["true"]},
        {"name": "x", "secretEnv": {"A": secret}, "command": ["true"], "queue": "none"},
    ]
    for form in forms:
        text = json.dumps(form)
        kaiwo.api("POST", "/api/v1/workloads", text.encode())
        kaiwo.api("POST", "/api/v1/workloads", text.encode()[:-1])
        kaiwo.api("POST", "/api/v1/manifests", text.encode(), "application/yaml")
        kaiwo.api("POST", "/api/v1/manifests", f"name: x\nsecretEnv: {{A: '{secret}\n".encode(), "application/yaml")
        kaiwo.api("POST", "/api/v1/manifests", f"name: x\nsecretEnv: {{A: {secret}}}}}\n".encode(), "application/yaml")
        for mark in "!*&%@`|>":  # a value that nobody has quoted
            text = f"name: x\ncommand: ['true']\nsecretEnv:\n  A: {mark}{secret}\n"
            kaiwo.api("POST", "/api/v1/manifests?dry_run=true", text.encode(), "application/yaml")
    kaiwo("submit", "x", "--secret-env", secret, "--", "true")
    kaiwo("submit", "x", "--secret-env", f"={secret}", "--", "true")
    kaiwo("submit", "x", "--secret-env", f"9BAD={secret}", "--", "true")


def _exchange(kaiwo: Searched, code: str) -> bytes:
    body = json.dumps({"code": code}).encode()
    request = urllib.request.Request(
        f"{kaiwo.product.url}/api/v1/sessions", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request) as answer:
        return bytes(answer.read())
