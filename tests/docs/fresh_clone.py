"""A fresh clone of this repository, in which `make venv` finds the locked packages, as if they were downloaded."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import ROOT


def fresh_clone(target: Path) -> Path:
    """What is committed, and nothing else. Only the download of other packages is spared."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git repository, so nothing can be cloned")
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(target)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(target / ".venv")], check=True)
    packages = next((target / ".venv" / "lib").glob("python*")) / "site-packages"
    (packages / "locked.pth").write_text(sysconfig.get_paths()["purelib"])  # its own .pth files are not followed
    for program in ("pytest",):
        script = target / ".venv" / "bin" / program
        script.write_text(f"#!{target}/.venv/bin/python\nimport sys, pytest\nsys.exit(pytest.console_main())\n")
        script.chmod(0o755)
    stamps = target / ".venv" / "stamps"
    stamps.mkdir()
    (stamps / "locked").touch()
    return target
