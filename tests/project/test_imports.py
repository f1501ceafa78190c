"""The folders import each other only as the contracts in pyproject.toml allow."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


def test_the_import_contracts_hold() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint_imports, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("kaiwo.cli.main", {"numpy"}),
        ("kaiwo.app.up", {"aiohttp", "yaml", "cryptography"}),
        ("kaiwo.app.up", {"kaiwo.clusters.kubernetes.decode.wire_objects", "kaiwo.devices.agent.node_agent"}),
        ("kaiwo.app.up", {"kaiwo.history.audit.verify_audit"}),
        ("kaiwo.app.up", {"tomllib", "importlib.metadata", "xml.etree.ElementTree", "kaiwo.topology.sources.fabric"}),
    ],
)
def test_what_a_process_never_uses_it_never_imports(module: str, heavy: set[str]) -> None:
    """Imports cost start-up time and memory: a verb needs no arrays, one machine needs no Kubernetes client."""
    code = f"import sys, {module}; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
