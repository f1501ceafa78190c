"""A window in a real Chromium, as the tests speak of it.

In:    orders such as `page.click("button", "Hold")`.   Out: what the page shows, or a MismatchError that says it.
Never: sleeps. Every wait is for a condition, with a bound.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.waiting import PATIENCE_S

WAIT_S = PATIENCE_S


class MismatchError(AssertionError):
    """The page did not come to show what it should."""


class Page:
    """One browser with one window; `open` gives a fresh window."""

    def __init__(self, chromium: str, node: str) -> None:
        command = [node, str(ROOT / "ui" / "e2e" / "driver.mjs"), chromium]
        self._process = subprocess.Popen(
            command, cwd=ROOT / "ui", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        """Ends the browser."""
        self._process.communicate(timeout=PATIENCE_S)

    def open(self, url: str, width: int = 1440, height: int = 900, scheme: str = "light") -> None:
        """A fresh window on this address: no cookies, no memory of a theme."""
        self._order("open", url=url, width=width, height=height, scheme=scheme)

    def open_beside(self, url: str) -> None:
        """One more window of the same browser; the orders are for this one now."""
        self._order("openBeside", url=url)

    def look_at(self, window: int) -> None:
        """The orders are for this window now; the first is 0."""
        self._order("front", index=window)

    def close_window(self) -> None:
        self._order("closeWindow")

    def goto(self, url: str) -> None:
        self._order("goto", url=url)

    def reload(self) -> None:
        self._order("reload")

    def see(self, selector: str, text: str | None = None, within_s: float = WAIT_S) -> None:
        """Wait until something like this is visible."""
        self._order("see", selector=selector, text=text, timeout_ms=within_s * 1000)

    def miss(self, selector: str, text: str | None = None, within_s: float = WAIT_S) -> None:
        """Wait until nothing like this is visible."""
        self._order("miss", selector=selector, text=text, timeout_ms=within_s * 1000)

    def click(self, selector: str, text: str | None = None) -> None:
        self._order("click", selector=selector, text=text)

    def fill(self, selector: str, value: str) -> None:
        self._order("fill", selector=selector, value=value)

    def choose(self, selector: str, value: str) -> None:
        self._order("choose", selector=selector, value=value)

    def press(self, *keys: str) -> None:
        for key in keys:
            self._order("press", key=key)

    def text(self, selector: str) -> str:
        """What the first such element says."""
        return str(self._order("text", selector=selector))

    def count(self, selector: str) -> int:
        return int(self._order("count", selector=selector))

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return self._order("evaluate", script=script)

    def until(self, script: str, within_s: float = WAIT_S) -> None:
        """Wait until a JavaScript expression holds."""
        self._order("until", script=script, timeout_ms=within_s * 1000)

    def prefer(self, scheme: str) -> None:
        """The system changes between light and dark."""
        self._order("scheme", value=scheme)

    def resize(self, width: int, height: int) -> None:
        self._order("resize", width=width, height=height)

    def screenshot(self, path: Path, full: bool = False) -> None:
        self._order("screenshot", path=str(path), full=full)

    def errors(self) -> list[str]:
        """What the console complained of since `open`."""
        return list(self._order("seen")["errors"])

    def foreign_hosts(self) -> list[str]:
        """Who else was asked for anything since `open`."""
        return list(self._order("seen")["hosts"])

    def _order(self, order: str, **details: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = {name: value for name, value in details.items() if value is not None}
        self._process.stdin.write(json.dumps({"do": order, **given}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the browser ended while it was told to {order}")
        answer = json.loads(line)
        if "error" in answer:
            raise MismatchError(f"{order} {given}: {answer['error']}")
        return answer["ok"]
