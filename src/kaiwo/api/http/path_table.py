"""Find what answers a path: `/nodes/node-1/drain` is answered by what stands under `/nodes/{name}/drain`.

In:    an ASGI request.   Out: what answers it, with the values of the names in braces in `path_params`.
Never: compiles a pattern for each path; eighty of them took 12 ms of every start, and were tried one after the other.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

App = Callable[[Any, Any, Any], Awaitable[None]]  # an ASGI application
Named = tuple[App, tuple[str, ...]]  # and what the paths call the parts that may be any text


class PathTable:
    """An ASGI application that hands each request to the application of its path."""

    def __init__(self, apps: Mapping[str, App], otherwise: App) -> None:
        self._plain = {path: app for path, app in apps.items() if "{" not in path}
        # By the number of parts, and which of them have names: the other parts of each path.
        self._named: dict[int, dict[tuple[int, ...], dict[tuple[str, ...], Named]]] = {}
        self._otherwise = otherwise
        for path, app in apps.items():
            if "{" in path:
                self._add(path.split("/"), app)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        app = self._plain.get(scope["path"])
        if app is None:
            app, scope["path_params"] = self._find(scope["path"].split("/"))
        await app(scope, receive, send)

    def _add(self, parts: list[str], app: App) -> None:
        places = tuple(at for at, part in enumerate(parts) if part.startswith("{"))
        names = tuple(parts[at][1:-1] for at in places)
        of_length = self._named.setdefault(len(parts), {})
        of_length.setdefault(places, {})[_others(parts, places)] = app, names

    def _find(self, parts: list[str]) -> tuple[App, dict[str, str]]:
        for places, paths in self._named.get(len(parts), {}).items():
            values = [parts[at] for at in places]
            if (found := paths.get(_others(parts, places))) and all(values):
                app, names = found
                return app, dict(zip(names, values, strict=True))
        return self._otherwise, {}


def _others(parts: list[str], places: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(part for at, part in enumerate(parts) if at not in places)
