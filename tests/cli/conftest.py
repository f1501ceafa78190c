"""A stub of the server, and a way to type a command line."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kaiwo.cli.main import main
from tests.cli.stub_server import TOKEN, Stub


class Typed(NamedTuple):
    """What came back from one command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def lines(self) -> list[str]:
        return self.out.splitlines()


Type = Callable[..., Typed]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; no server."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("KAIWO_HOME", str(folder))
    for name in ("KAIWO_SERVER", "KAIWO_TOKEN", "KAIWO_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def stub(home: Path) -> Iterator[Stub]:
    """A server that `kaiwo` finds through server.json."""
    stub = Stub()
    (home / "server.json").write_text(json.dumps({"url": stub.url, "pid": 1}))
    (home / "token").write_text(TOKEN + "\n")
    (home / "token").chmod(0o600)
    yield stub
    stub.close()


@pytest.fixture
def kaiwo(capfd: pytest.CaptureFixture[str], home: Path) -> Type:
    """Type a command line: `kaiwo("get", "nodes")`."""

    def type_it(*args: str) -> Typed:
        capfd.readouterr()
        code = main(list(args))
        out, err = capfd.readouterr()
        return Typed(code, out, err)

    return type_it
