"""The files around the code agree with each other, and nothing in the project names where packages come from."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
# Written in two parts, so that this file passes its own test.
HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs"),
        ("registry", "yarnpkg"),
        ("proxy", "golang"),
        ("deb", "debian"),
        ("crates", "io"),
    )
)


def project_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_package_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in project_files()
        for host in HOSTS
        if host.encode() in path.read_bytes()
    ]
    assert found == []


def test_the_images_base_has_a_digest() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=\S+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}


def test_no_lock_file_holds_a_download_address() -> None:
    for lock in LOCKS:
        assert "://" not in lock.read_text(), lock
    for path in project_files():
        if path.name == "package-lock.json":
            assert '"resolved": "http' not in path.read_text(), path


def test_the_npm_lock_names_every_platform() -> None:
    """npm leaves out an optional package that it could not find, and `npm ci` then refuses the whole lock file."""
    lock = ROOT / "ui" / "package-lock.json"
    if not lock.exists():
        pytest.skip("there is no ui/ yet")
    packages = json.loads(lock.read_text())["packages"]
    present = {path.rpartition("node_modules/")[2] for path in packages}
    wanted = {name for package in packages.values() for name in package.get("optionalDependencies", {})}
    assert sorted(wanted - present) == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_locked_package_is_pinned_and_hashed(lock: Path) -> None:
    entries = [entry for entry in re.split(r"\n(?=\S)", lock.read_text().strip()) if not entry.startswith("#")]
    assert entries
    for entry in entries:
        assert re.match(r"[\w.-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_the_default_install_is_locked() -> None:
    lines = (ROOT / "requirements" / "run.in").read_text().splitlines()
    assert sorted(line for line in lines if line and not line.startswith("#")) == sorted(
        re.split(r"[><=~]", requirement)[0] for requirement in PROJECT["dependencies"]
    )


def test_the_changelog_has_a_place_for_the_next_line() -> None:
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
