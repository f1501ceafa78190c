"""The live cluster on one screen of a terminal, with the keys of k9s.

Lists are read from the API every two seconds, in a thread, so that keys are answered at once. What a key shows or does
about one object is the output of the verb for it, in a process of its own.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from prompt_toolkit.application import Application
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import ColorDepth, Output

from kaiwo.api.views.cluster import StatusView
from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.lists.object_kinds import GPUS, NODES, QUEUES, RESERVATIONS, WORKLOADS, ObjectKind, find_kind
from kaiwo.cli.lists.show_list import ListRequest, fetch_list, filter_and_sort, list_lines
from kaiwo.cli.output.table_layout import cut, display_width, fold
from kaiwo.model.amounts import count, thousandths
from kaiwo.model.errors import KaiwoError

REFRESH_S = 2.0
MOST_ROWS = 500
VERB_S = 30.0
VIEWS = (WORKLOADS, NODES, QUEUES, GPUS, RESERVATIONS)
HELP = """\
1 to 5, or :NAME   workloads, nodes, queues, gpus, reservations
up, down, j, k     move; g, G: first, last; Page Up, Page Down
/TEXT              show only rows with this text; Esc shows all
Enter, d           describe
w                  why it waits, and what would start it
l                  logs
y                  its manifest
Ctrl-K             cancel, after a question
h, r               hold, release
Esc, q             back; q in a list ends
?                  this page"""
Fragments = list[tuple[str, str]]
RunVerb = Callable[[Sequence[str]], str]


class TopScreen:
    """What is on the screen, and what each key does."""

    def __init__(self, connect: Callable[[], ApiClient], run_verb: RunVerb, kind: ObjectKind = WORKLOADS) -> None:
        self._connect, self._run_verb, self.kind = connect, run_verb, kind
        self.views: list[Any] = []
        self.status: StatusView | None = None
        self.selected, self.filter = 0, ""
        self.text: list[str] | None = None  # a page of text in place of the list
        self.text_top = 0
        self.prompt: str | None = None  # what is being typed, with its first sign `:` or `/`
        self.question: tuple[str, list[str]] | None = None  # to be answered with y: the words, and the verb
        self.note, self.problem = "", ""
        self._size = (80, 24)
        self._asked_at = 0.0

    # What is read.

    def read(self) -> None:
        """Read the list again; on a thread. A server that is gone is a line at the bottom."""
        kind = self.kind
        try:
            server = self._connect()
            status = server.decode(server.get("/status"), StatusView)
            request = ListRequest(limit=MOST_ROWS)
            items, _ = fetch_list(server, kind, request)
            views = filter_and_sort(kind, request, server.convert(items, list[kind.view]))  # type: ignore[name-defined]
        except KaiwoError as error:
            self.problem = f"trying again: {error}"
            return
        self.problem, self.status = "", status
        if kind is self.kind:  # the view may have changed meanwhile
            self.views = views

    # What is shown.

    def lines(self, columns: int, rows: int) -> Fragments:
        """The whole screen."""
        self._size = (columns, rows)
        room = max(1, rows - 2)
        body = self._text_lines(columns, room) if self.text is not None else self._list_lines(columns, room)
        body += [("", "")] * (room - len(body))
        shown = [("bold", self._title()), *body[:room], self._footer()]
        ends = ["\n"] * (len(shown) - 1) + [""]
        return [(style, cut(text, columns) + end) for (style, text), end in zip(shown, ends, strict=True)]

    def names(self) -> list[str]:
        return [self.kind.key(view) for view in self._shown()]

    def _shown(self) -> list[Any]:
        if not self.filter:
            return self.views
        text = self.filter.lower()
        return [view for view in self.views if text in msgspec.json.encode(view).decode().lower()]

    def _title(self) -> str:
        if self.status is None:
            return "kaiwo"
        status = self.status
        gpus = f"GPUs {thousandths(status.gpu_milli.used)} of {thousandths(status.gpu_milli.total)}"
        states = ", ".join(f"{number} {state}" for state, number in status.workloads.items() if number)
        filtered = f" /{self.filter}" if self.filter else ""
        return f"kaiwo {self.kind.plural}{filtered}   {gpus}   {states or 'no workloads'}"

    def _list_lines(self, columns: int, room: int) -> Fragments:
        views = self._shown()
        self.selected = max(0, min(self.selected, len(views) - 1))
        if not views:
            return [("", f"no {self.kind.noun}" + (f" match {self.filter}" if self.filter else ""))]
        now_s = self.status.cluster.now_s if self.status else 0
        size = max(1, room - 1)
        first = max(0, min(self.selected - size // 2, len(views) - size))
        part = views[first : first + size]
        # A row each: sentences that would go below their row are cut at the edge of the screen.
        head, *rows = list_lines(self.kind, ListRequest(), part, now_s, 0, paint=str)
        return [("bold", head), *(
            ("reverse" if first + at == self.selected else "", row.ljust(columns)) for at, row in enumerate(rows)
        )]  # fmt: skip

    def _text_lines(self, columns: int, room: int) -> Fragments:
        """Long lines continue on the next one, as far to the right as they began."""
        assert self.text is not None
        lines = [part for line in self.text for part in _folded(line, columns)]
        self.text_top = max(0, min(self.text_top, len(lines) - room))
        return [("", line) for line in lines[self.text_top : self.text_top + room]]

    def _footer(self) -> tuple[str, str]:
        if self.question is not None:
            return "reverse", f"{self.question[0]} y: yes, any other key: no"
        if self.prompt is not None:
            return "", self.prompt
        if self.problem:
            return "reverse", self.problem
        keys = "Esc back" if self.text is not None else "w why  d describe  l logs  : view  / filter  ? help  q quit"
        shown = count(len(self._shown()), self.kind.singular) if self.text is None and self.kind is not GPUS else ""
        return "", "   ".join(filter(None, (self.note or shown, keys)))

    # What keys do.

    def move(self, by: int) -> None:
        if self.text is not None:
            self.text_top += by
        else:
            self.selected = max(0, min(len(self._shown()) - 1, self.selected + by))

    def page(self, direction: int) -> None:
        self.move(direction * max(1, self._size[1] - 4))

    def show(self, kind: ObjectKind) -> None:
        if kind is not self.kind:
            self.views, self.selected, self.filter = [], 0, ""
        self.kind, self.text, self.note = kind, None, ""

    def back(self) -> bool:
        """One step back; False: there is none."""
        self.note = ""
        if self.text is not None:
            self.text = None
        elif self.filter:
            self.filter = ""
        else:
            return False
        return True

    def finish_prompt(self) -> None:
        prompt, self.prompt = self.prompt or "", None
        word = prompt[1:].strip()
        if prompt.startswith("/"):
            self.filter, self.selected = word, 0
        elif word in ("q", "quit"):
            raise EOFError
        elif (kind := find_kind(word)) in VIEWS and kind is not None:
            self.show(kind)
        elif word:
            self.note = f"no view '{word}'; there are {', '.join(each.plural for each in VIEWS)}"

    def verb_for(self, key: str) -> list[str] | None:
        """The words of the verb about the selected object; None: there is none for it."""
        names = self.names()
        if not names or self.text is not None:
            return None
        name = names[min(self.selected, len(names) - 1)]
        if key == "describe":
            return ["describe", self.kind.singular, name]
        if key == "manifest" and self.kind in (WORKLOADS, QUEUES, RESERVATIONS):
            return ["get", self.kind.singular, name, "-o", "yaml"]
        return [key, name] if self.kind is WORKLOADS and key != "manifest" else None

    def ask_verb(self, words: list[str]) -> str:
        """On a thread: the verb's output."""
        return self._run_verb(words)


def run_top(
    screen: TopScreen, terminal: Input | None = None, output: Output | None = None, has_colour: bool = True
) -> None:
    """Run until the person leaves."""
    app: Application[None] = Application(
        layout=Layout(HSplit([Window(FormattedTextControl(lambda: list(_screen_text(screen))), wrap_lines=False)])),
        key_bindings=_bindings(screen),
        full_screen=True,
        input=terminal,
        output=output,
        color_depth=None if has_colour else ColorDepth.DEPTH_1_BIT,
    )

    async def refresh() -> None:
        while True:
            await asyncio.get_running_loop().run_in_executor(None, screen.read)
            app.invalidate()
            await _until_due(screen)

    async def run() -> None:
        reading = asyncio.create_task(refresh())
        try:
            await app.run_async()
        finally:
            reading.cancel()

    asyncio.run(run())


async def _until_due(screen: TopScreen) -> None:
    """Two seconds, or less when another view was asked for."""
    kind, began = screen.kind, time.monotonic()
    while time.monotonic() - began < REFRESH_S and screen.kind is kind:
        await asyncio.sleep(0.05)


def _folded(line: str, columns: int) -> list[str]:
    if display_width(line) <= columns:
        return [line]
    indent = " " * min(len(line) - len(line.lstrip(" -")), columns // 2)
    first, *rest = fold(line.strip(), max(1, columns - len(indent)))
    return [line[: len(line) - len(line.lstrip())] + first, *(indent + part for part in rest)]


def _screen_text(screen: TopScreen) -> Fragments:
    from prompt_toolkit.application import get_app

    size = get_app().output.get_size()
    return screen.lines(size.columns, size.rows)


def _bindings(screen: TopScreen) -> KeyBindings:
    keys = KeyBindings()
    plain: dict[str, Callable[[], object]] = {
        "up": lambda: screen.move(-1), "k": lambda: screen.move(-1),
        "down": lambda: screen.move(1), "j": lambda: screen.move(1),
        "pageup": lambda: screen.page(-1), "c-b": lambda: screen.page(-1),
        "pagedown": lambda: screen.page(1), "c-f": lambda: screen.page(1),
        "g": lambda: screen.move(-(1 << 30)), "home": lambda: screen.move(-(1 << 30)),
        "G": lambda: screen.move(1 << 30), "end": lambda: screen.move(1 << 30),
        ":": lambda: setattr(screen, "prompt", ":"), "/": lambda: setattr(screen, "prompt", "/"),
        "?": lambda: setattr(screen, "text", HELP.splitlines()),
        **{str(at): partial(screen.show, kind) for at, kind in enumerate(VIEWS, 1)},
    }  # fmt: skip
    verbs = {
        "enter": "describe",
        "d": "describe",
        "w": "why",
        "l": "logs",
        "y": "manifest",
        "h": "hold",
        "r": "release",
    }

    def leave(event: KeyPressEvent) -> None:
        event.app.exit()

    @keys.add("<any>")
    def typed(event: KeyPressEvent) -> None:
        key = event.key_sequence[0].key
        name = key.value if hasattr(key, "value") else str(key)
        name = {"c-m": "enter", "c-j": "enter", "c-h": "backspace", "c-i": "tab"}.get(name, name)
        screen.note = ""
        if screen.question is not None:
            asked, screen.question = screen.question[1], None
            if name == "y":
                _start_verb(event, screen, asked, is_action=True)
        elif screen.prompt is not None:
            _type(event, screen, name)
        elif name == "q" and screen.text is None:
            leave(event)
        elif name in ("escape", "q"):
            screen.back()
        elif name == "c-k" and (cancel := screen.verb_for("cancel")) is not None:
            screen.question = (f"Cancel {cancel[1]}?", cancel)
        elif name in verbs and (words := screen.verb_for(verbs[name])) is not None:
            _start_verb(event, screen, words, is_action=verbs[name] in ("hold", "release"))
        elif name in plain:
            plain[name]()

    keys.add("escape", eager=True)(typed)
    keys.add("c-c")(leave)
    keys.add("c-d")(leave)
    return keys


def _type(event: KeyPressEvent, screen: TopScreen, name: str) -> None:
    """A key while a command or a filter is typed."""
    assert screen.prompt is not None
    if name == "enter":
        try:
            screen.finish_prompt()
        except EOFError:
            event.app.exit()
    elif name == "escape":
        screen.prompt = None
    elif name == "backspace":
        screen.prompt = screen.prompt[:-1] or None
    elif len(event.data) == 1 and event.data.isprintable():
        screen.prompt += event.data


def _start_verb(event: KeyPressEvent, screen: TopScreen, words: list[str], is_action: bool) -> None:
    """Run a verb beside the screen; an action's answer is a line, all others are a page."""
    screen.note = f"kaiwo {' '.join(words)} ..."

    async def run() -> None:
        said = await asyncio.get_running_loop().run_in_executor(None, screen.ask_verb, words)
        lines = said.splitlines() or ["it printed nothing"]
        screen.note = lines[-1] if is_action else ""
        if not is_action:
            screen.text, screen.text_top = lines, 0
        event.app.invalidate()

    event.app.create_background_task(run())


def run_verb(location: Sequence[str], words: Sequence[str]) -> str:
    """The output of a verb, as wide as the terminal."""
    import subprocess

    command = [sys.executable, "-m", "kaiwo.cli.main", words[0], *location, *words[1:]]
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=VERB_S, check=False,
            env=os.environ | {"NO_COLOR": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"kaiwo {' '.join(words)} took longer than {VERB_S:g} s"
    return ended.stdout + ended.stderr
