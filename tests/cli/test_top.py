"""`kaiwo top`: one screen, the keys of k9s, and a server that may go away."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from kaiwo.cli.client.find_server import ServerLocation, connect
from kaiwo.cli.lists.object_kinds import NODES, WORKLOADS
from kaiwo.cli.lists.top_screen import TopScreen, run_top
from kaiwo.cli.output.table_layout import display_width
from tests.cli.conftest import Type
from tests.cli.stub_server import Stub, workload
from tests.waiting import PATIENCE_S


def top_screen(home: Path, said: list[list[str]] | None = None) -> TopScreen:
    def run_verb(words: object) -> str:
        (said if said is not None else []).append(list(words))  # type: ignore[call-overload]
        return f"the answer of {words[0]}\n"  # type: ignore[index]

    return TopScreen(lambda: connect(ServerLocation(home=str(home)), 5.0), run_verb)


def shown(screen: TopScreen, columns: int = 100, rows: int = 12) -> list[str]:
    return "".join(text for _, text in screen.lines(columns, rows)).split("\n")


def test_the_screen_has_the_cluster_the_list_and_the_keys(stub: Stub, home: Path) -> None:
    screen = top_screen(home)
    screen.read()
    title, head, *rows = shown(screen)
    assert title.startswith("kaiwo workloads   GPUs ")
    assert head.split()[:3] == ["NAME", "QUEUE", "STATE"]
    assert [row.split()[0] for row in rows[:2]] == [name.removeprefix("default/") for name in screen.names()[:2]]
    assert "w why" in rows[-1]
    assert len(rows) == 10


@pytest.mark.parametrize("columns", [1, 20, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_none_is_missing(stub: Stub, home: Path, columns: int) -> None:
    for name in ("\x1b[31mred", "日本" * 40, "a" * 300):
        stub.workloads[f"default/{name}"] = workload(name, "waiting", reason="\x1b]0;t\x07 it waits\n" * 9)
    screen = top_screen(home)
    screen.read()
    for rows in (1, 3, 24):
        lines = shown(screen, columns, rows)
        assert len(lines) == max(3, rows)
        assert all(display_width(line.rstrip()) <= columns for line in lines)
        assert not any("\x1b" in line or "\x07" in line for line in lines)


def test_a_long_line_of_an_answer_continues_on_the_next(stub: Stub, home: Path) -> None:
    screen = top_screen(home)
    screen.text = [
        "train is waiting: it needs 8 GPUs free on one node",
        "- no node has more than 3",
        "    remedy: wait",
    ]
    assert [line.rstrip() for line in shown(screen, 24, 9)[1:7]] == [
        "train is waiting: it", "needs 8 GPUs free on one", "node",
        "- no node has more", "  than 3", "    remedy: wait",
    ]  # fmt: skip
    assert all(display_width(line) <= 24 for line in shown(screen, 24, 9))
    screen.text = ["日本" * 40]
    assert all(display_width(line.rstrip()) <= 24 for line in shown(screen, 24, 9))


def test_a_server_that_is_gone_is_a_line_at_the_bottom_and_comes_back(stub: Stub, home: Path) -> None:
    screen = top_screen(home)
    screen.read()
    before = screen.names()
    (home / "server.json").rename(home / "gone")
    screen.read()
    assert "trying again" in shown(screen)[-1]
    assert screen.names() == before, "what was read last stays on the screen"
    (home / "gone").rename(home / "server.json")
    screen.read()
    assert screen.problem == ""


def test_keys_change_the_view_filter_ask_and_leave(stub: Stub, home: Path) -> None:
    said: list[list[str]] = []
    screen = top_screen(home, said)
    with create_pipe_input() as keys:
        done = threading.Thread(target=lambda: run_top(screen, keys, DummyOutput()))
        done.start()
        until(lambda: screen.names(), "the first list")
        first = screen.names()[0]
        keys.send_text("w")
        until(lambda: screen.text == ["the answer of why"], "the answer")
        assert said == [["why", first]]
        keys.send_text("q")
        until(lambda: screen.text is None, "the list again")
        keys.send_text(":nodes\r")
        until(lambda: screen.kind is NODES and screen.names(), "nodes")
        keys.send_text("w")  # a node does not wait
        keys.send_text("1")
        until(lambda: screen.kind is WORKLOADS and screen.names(), "workloads")
        keys.send_text("/no such text\r")
        until(lambda: screen.names() == [], "nothing")
        keys.send_text("\x1b")
        until(lambda: screen.names() != [], "all of them again")
        keys.send_text("\x0bn")
        keys.send_text("\x0by")
        until(lambda: ["cancel", first] in said, "the cancel")
        assert said == [["why", first], ["cancel", first]], "only the second question was answered with yes"
        until(lambda: "the answer of cancel" in shown(screen)[-1], "its answer")
        keys.send_text(":nope\r")
        until(lambda: "no view 'nope'" in shown(screen)[-1], "a sentence")
        keys.send_text("?")
        until(lambda: screen.text is not None and "Ctrl-K" in "".join(screen.text), "the help")
        keys.send_text("\x03")
        done.join(PATIENCE_S)
        assert not done.is_alive()


def test_in_a_pipe_it_names_the_verb_for_that(stub: Stub, kaiwo: Type) -> None:
    typed = kaiwo("top", "nodes")
    assert (typed.code, typed.out) == (2, "")
    assert "kaiwo get nodes -w" in typed.err


def until(condition: Callable[[], object], what: str) -> None:
    async def wait() -> None:
        for _ in range(int(PATIENCE_S / 0.02)):
            if condition():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"no {what}")

    asyncio.run(wait())
