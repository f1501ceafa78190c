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


@pytest.mark.skipif(not (ROOT / "src/kaiwo/cli/main.py").exists(), reason="there is no kaiwo.cli.main yet")
def test_the_cli_starts_without_numpy() -> None:
    code = "import sys, kaiwo.cli.main; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
