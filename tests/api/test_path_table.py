"""Every path finds its answer, and no other path does."""

import asyncio
from typing import Any

import pytest

from kaiwo.api.application import API_ROUTES
from kaiwo.api.http.path_table import App, PathTable

PATHS = sorted({route.path for route in API_ROUTES})


def answered(path: str) -> tuple[str, dict[str, str]]:
    """Which path of the table answered, and with which values."""
    seen: list[tuple[str, dict[str, str]]] = []

    def app(name: str) -> App:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            seen.append((name, scope.get("path_params", {})))

        return answer

    table = PathTable({each: app(each) for each in PATHS}, app("nothing"))
    asyncio.run(table({"path": path}, None, None))
    return seen[0]


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_found_with_its_values(path: str) -> None:
    parts = path.split("/")
    values = {part[1:-1]: f"value-{at}" for at, part in enumerate(parts) if part.startswith("{")}
    asked = "/".join(values.get(part[1:-1], part) if part.startswith("{") else part for part in parts)
    assert answered(asked) == (path, values)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/nodes/",
        "//nodes",
        "/nodes//drain",
        "/nodes/a/b/drain",
        "/nodes/a/nothing",
        "/nodes\n",
        "/Nodes",
        "/x/y",
    ],
)
def test_other_paths_are_not_found(path: str) -> None:
    assert answered(path) == ("nothing", {})
