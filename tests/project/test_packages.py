"""The packages people install carry the web page when it was built, and can be built without it."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = "kaiwo/api/static/index.html"
pytestmark = pytest.mark.slow


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "LICENSE", "README.md", ".gitignore"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "static"))
    return tmp_path


def names_in_packages(checkout: Path) -> tuple[list[str], list[str]]:
    command = [sys.executable, "-m", "hatchling", "build", "-d", "dist"]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    (wheel,) = (checkout / "dist").glob("*.whl")
    (sdist,) = (checkout / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as wheel_file, tarfile.open(sdist) as sdist_file:
        return wheel_file.namelist(), sdist_file.getnames()


def test_the_packages_carry_the_built_page(checkout: Path) -> None:
    page = checkout / "src" / PAGE
    page.parent.mkdir(parents=True)
    page.write_text("<!doctype html>")
    in_wheel, in_sdist = names_in_packages(checkout)
    assert PAGE in in_wheel
    assert any(name.endswith("src/" + PAGE) for name in in_sdist)


def test_the_packages_can_be_built_without_the_page(checkout: Path) -> None:
    in_wheel, _ = names_in_packages(checkout)
    assert "kaiwo/__init__.py" in in_wheel
    assert PAGE not in in_wheel
