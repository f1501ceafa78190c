"""`kaiwo doctor`: check this installation, and say what to fix.

Never: changes anything, apart from a temporary file that tests whether the home folder is writable.
"""

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable

import click
import msgspec

from kaiwo import __version__
from kaiwo.api.views.cluster import StatusView
from kaiwo.cli.client.api_client import ApiClient, NoServerError
from kaiwo.cli.client.find_server import ServerLocation, connect
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import Verb, server_location
from kaiwo.model.amounts import count, rounded_memory
from kaiwo.model.errors import KaiwoError

OLDEST_PYTHON = (3, 11)
WARN_FREE_MIB, FAIL_FREE_MIB = 1024, 64
CLOCK_SLACK_S = 5


class CheckResult(msgspec.Struct, frozen=True):
    check: str
    result: str  # ok | warn | fail
    fact: str
    todo: str = ""


def run_checks(location: ServerLocation) -> list[CheckResult]:
    """Run all checks, in the order in which problems should be fixed."""
    findings = [check_python(), check_home(location), check_disk(location), check_token(location)]
    try:
        server = connect(location, timeout_s=5)
    except KaiwoError as error:
        return [*findings, _no_server(error), check_gpus(None), check_memory(None), check_page()]
    checks = [check_server(server), check_clock(server), check_gpus(server), check_memory(server), check_page()]
    return findings + checks


def check_python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return CheckResult("python", "fail", f"Python {version}", "install Python 3.11 or newer")
    return CheckResult("python", "ok", f"Python {version}, kaiwo {__version__}")


def check_home(location: ServerLocation) -> CheckResult:
    home = location.home_path
    if not os.path.isdir(home):
        parent = _nearest_existing(home)
        if os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK):
            return CheckResult("home", "ok", f"{home} (kaiwo up will create it)")
        return CheckResult("home", "fail", f"{home} does not exist and can't be created in {parent}", "set KAIWO_HOME")
    try:
        with tempfile.NamedTemporaryFile(dir=home, prefix=".doctor-"):
            return CheckResult("home", "ok", f"{home} is writable")
    except OSError as error:
        return CheckResult("home", "fail", f"{home} is not writable ({error.strerror})", "fix it, or set KAIWO_HOME")


def check_disk(location: ServerLocation) -> CheckResult:
    space = os.statvfs(_nearest_existing(location.home_path))
    free_mib = space.f_bavail * space.f_frsize // (1024 * 1024)
    fact = f"{rounded_memory(free_mib)} free"
    if free_mib < FAIL_FREE_MIB:
        return CheckResult("disk", "fail", fact, "free some space: Kaiwo can't write its state and logs")
    if free_mib < WARN_FREE_MIB:
        return CheckResult("disk", "warn", fact, "free some space soon: the logs and the journal grow")
    return CheckResult("disk", "ok", fact)


def check_token(location: ServerLocation) -> CheckResult:
    path = location.token_file
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return CheckResult("token", "ok", "none yet (kaiwo up creates it)")
    except OSError as error:
        return CheckResult("token", "fail", f"{path}: {error.strerror}", "fix its permissions, or set KAIWO_HOME")
    mode = found.st_mode & 0o777
    if found.st_uid != os.getuid():
        return CheckResult("token", "fail", f"{path} belongs to another user", "set KAIWO_HOME to a folder of your own")
    if mode & 0o077:
        return CheckResult("token", "fail", f"{path} has mode {mode:04o}", f"others can read it; run: chmod 600 {path}")
    return CheckResult("token", "ok", f"only you can read it (mode {mode:04o})")


def check_server(server: ApiClient) -> CheckResult:
    try:
        version = server.decode(server.get("/version"), dict[str, str]).get("version", "")
    except KaiwoError as error:
        return _no_server(error)
    if version != __version__:
        fact = f"{server.url} is kaiwo {version}, this command is {__version__}"
        return CheckResult("server", "warn", fact, "restart it with: kaiwo up")
    return CheckResult("server", "ok", f"kaiwo {version} at {server.url}")


def check_clock(server: ApiClient) -> CheckResult:
    """Compare with the server's Date header: a wrong clock shows wrong ages."""
    from email.utils import parsedate_to_datetime

    if time.time() < 1_700_000_000:
        fact = time.strftime("it says %Y-%m-%d", time.gmtime())
        return CheckResult("clock", "fail", fact, "set this machine's clock")
    try:
        with server.open("GET", "/version") as response:
            stamp = response.headers.get("date")
        off_s = abs(parsedate_to_datetime(stamp).timestamp() - time.time()) if stamp else 0
    except (KaiwoError, ValueError, TypeError):
        return CheckResult("clock", "ok", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
    if off_s > CLOCK_SLACK_S:
        return CheckResult("clock", "warn", f"{off_s:.0f} s off the server's clock", "synchronise both clocks with NTP")
    return CheckResult("clock", "ok", "in sync with the server")


def check_gpus(server: ApiClient | None) -> CheckResult:
    seen = ""
    if server:
        with contextlib.suppress(KaiwoError):
            view = server.decode(server.get("/status"), StatusView)
            kind = "virtual" if view.cluster.is_virtual else "real"
            seen = f"; kaiwo schedules {count(view.gpus.total, kind + ' GPU')}"
    found = {"AMD": _amd_gpus(), "NVIDIA": _nvidia_gpus()}
    if not any(found.values()):
        return CheckResult("gpus", "ok", f"this machine has no GPU, so the nodes are virtual{seen}")
    here = " and ".join(count(n, f"{vendor} GPU") if n else f"no {vendor} GPU" for vendor, n in found.items())
    return CheckResult("gpus", "ok", f"this machine has {here}{seen}")


def check_memory(server: ApiClient | None) -> CheckResult:
    """Whether --memory is a limit: what the running Kaiwo says, or what one that is started from here could do."""
    if server:
        try:
            cluster = server.decode(server.get("/status"), StatusView).cluster
        except KaiwoError:
            return check_memory(None)
        if cluster.kind != "local":
            return CheckResult("memory", "ok", "pods have the limits of their containers")
        why, remedy = cluster.memory_promise, cluster.memory_remedy
    else:
        from kaiwo.clusters.local.cgroup_place import choose_place

        choice = choose_place()
        why, remedy = choice.why_not, choice.remedy
    if why:
        return CheckResult("memory", "warn", f"--memory is a promise, not a limit: {why}", remedy)
    return CheckResult("memory", "ok", "--memory is a limit: each run has its own cgroup")


def check_page() -> CheckResult:
    import kaiwo

    page = os.path.join(os.path.dirname(kaiwo.__file__), "api", "static", "index.html")
    if os.path.isfile(page):
        return CheckResult("page", "ok", "the web page is built")
    return CheckResult("page", "warn", "the web page is not built; the API works", "build it in the checkout: make ui")


def _no_server(error: KaiwoError) -> CheckResult:
    if isinstance(error, NoServerError):
        return CheckResult("server", "warn", error.fact, error.todo)
    todo = "stop the program that uses this port, or start kaiwo on another: kaiwo up --port 0"
    return CheckResult("server", "fail", str(error), todo)


def _nearest_existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    return path


def _amd_gpus(root: str = "/sys/class/kfd/kfd/topology/nodes") -> int:
    return _count_folders(root, lambda node: _has_compute_units(os.path.join(node, "properties")))


def _nvidia_gpus(root: str = "/proc/driver/nvidia/gpus") -> int:
    return _count_folders(root, os.path.isdir)


def _count_folders(root: str, is_one: Callable[[str], bool]) -> int:
    try:
        return sum(is_one(os.path.join(root, name)) for name in os.listdir(root))
    except OSError:
        return 0


def _has_compute_units(properties: str) -> bool:
    try:
        with open(properties, encoding="ascii", errors="replace") as file:
            facts = dict(line.split(maxsplit=1) for line in file if " " in line.strip())
    except (OSError, ValueError):
        return False
    return facts.get("simd_count", "0").strip() not in ("", "0")


@click.command(cls=Verb)
@printing.output_option("table", "json", "yaml")
def doctor(output: str) -> int:
    """Check this installation: Python, the home folder, disk, token, server, clock, GPUs, memory limit, web page.

    Exits with 1 if a check fails; warnings do not count.

    \b
    Example:
      kaiwo doctor
    """
    findings = run_checks(server_location())
    if output != "table":
        printing.print_data([msgspec.to_builtins(finding) for finding in findings], output)
    else:
        _print(findings)
    return 1 if any(finding.result == "fail" for finding in findings) else 0


def _print(findings: list[CheckResult]) -> None:
    for finding in findings:
        result = printing.paint_state(finding.result) + " " * (4 - len(finding.result))
        click.echo(f"{result}  {finding.check:<8}  {printing.wrap(finding.fact, ' ' * 16).lstrip()}")
        if finding.todo:
            click.echo(printing.wrap(f"-> {finding.todo}", " " * 16))
    bad = sum(finding.result != "ok" for finding in findings)
    click.echo("\n" + ("all checks passed" if not bad else f"{bad} of {len(findings)} checks need your attention"))
