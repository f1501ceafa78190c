"""A change that stops running work, at a terminal: shown, asked for, and sent again only after a yes."""

import io
import sys

import click
import pytest

from kaiwo.cli.stop_running import INSIST, confirm_stop, insist
from kaiwo.model.errors import RefusedError
from tests.cli.conftest import Type
from tests.cli.stub_server import Stub


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def answer(monkeypatch: pytest.MonkeyPatch, typed: str, field: str = INSIST) -> list[dict[str, str]]:
    """What was sent to a server that refuses until the client insists."""
    sent: list[dict[str, str]] = []

    def send(query: dict[str, str]) -> bytes:
        sent.append(query)
        if INSIST not in query:
            raise RefusedError("reservation night stops 1 running workload: default/train", field)
        return b"done"

    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert insist(send, yes=False) == b"done"
    return sent


def test_after_a_yes_it_is_sent_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(monkeypatch, "y\n") == [{}, {INSIST: "true"}]
    assert "stops 1 running workload: default/train" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["n\n", "\n", ""])
def test_anything_else_changes_nothing(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    with pytest.raises(click.Abort):
        answer(monkeypatch, typed)


def test_other_refusals_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError):
        answer(monkeypatch, "y\n", field="queue")


@pytest.mark.parametrize("typed", ["n\n", "\n", ""])
def test_work_that_runs_is_shown_and_only_a_yes_stops_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    with pytest.raises(click.Abort):
        confirm_stop(lambda: "this stops 2 pods of train on node node-3")
    assert "this stops 2 pods of train on node node-3" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    confirm_stop(lambda: "this stops 2 pods of train on node node-3")


def test_where_nothing_runs_or_nobody_sits_at_a_terminal_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    confirm_stop(lambda: "")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    confirm_stop(lambda: pytest.fail("a script is not asked, so nothing is looked up"))


def test_a_drain_asks_at_a_terminal_and_yes_answers_it(
    monkeypatch: pytest.MonkeyPatch, stub: Stub, kaiwo: Type
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    refused = kaiwo("nodes", "drain", "node-1")
    assert refused.code != 0
    assert "this stops 1 pod of train on node node-1" in refused.err
    assert not stub.written()
    assert kaiwo("nodes", "drain", "node-1", "--yes").code == 0
    assert stub.written() == ["POST /nodes/node-1/drain"]
