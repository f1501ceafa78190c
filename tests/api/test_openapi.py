"""The OpenAPI document is whole, and names everything there is."""

import re
import runpy
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from kaiwo.api.application import API_ROUTES, BASE, context_of, document, make_app
from kaiwo.api.settings import Settings
from kaiwo.api.views.cluster import StatusView
from kaiwo.api.views.nodes import GpuView, NodeView
from kaiwo.api.views.queues import QueueView
from kaiwo.api.views.workloads import WhyView, WorkloadView
from tests.api.fake_loop import FakeLoop
from tests.waiting import run

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = msgspec.json.decode(msgspec.json.encode(document()))
METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, found) for path, item in DOCUMENT["paths"].items() for method, found in item.items()]


def references(part: Any) -> list[str]:
    if isinstance(part, dict):
        found = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
        return found + [each for value in part.values() for each in references(value)]
    return [each for value in part for each in references(value)] if isinstance(part, list) else []


@pytest.mark.parametrize("path", ["/api/v1/openapi.json", "/openapi.json"])
def test_it_is_served_as_it_is_made(tmp_path: Path, path: str) -> None:
    async def work() -> Any:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path)))
        headers = {"Authorization": f"Bearer {context_of(app).access.token}"}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return (await client.get(path)).json()

    assert run(work()) == DOCUMENT


def test_its_structure_is_that_of_openapi_3_1() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    assert set(DOCUMENT) == {"openapi", "info", "paths", "components"}
    assert DOCUMENT["info"]["title"]
    assert DOCUMENT["info"]["version"]
    for path, method, found in operations():
        assert path.startswith("/")
        assert method in METHODS
        assert set(found) <= {
            "operationId",
            "summary",
            "security",
            "responses",
            "parameters",
            "requestBody",
            "x-kaiwo-right",
        }
        assert found["responses"], path
        for code, answer in found["responses"].items():
            assert re.fullmatch(r"[1-5][0-9][0-9]", code)
            assert answer["description"]
            assert all("schema" in content for content in answer["content"].values())
        for parameter in found.get("parameters", []):
            assert parameter["in"] in ("path", "query")
            assert {"name", "in", "required", "schema"} <= set(parameter)
            assert parameter["required"] or parameter["in"] == "query"


def test_path_parameters_are_those_of_the_path() -> None:
    for path, _, found in operations():
        named = [each["name"] for each in found.get("parameters", []) if each["in"] == "path"]
        assert named == re.findall(r"{(\w+)}", path)


def test_names_are_unique_and_references_lead_somewhere() -> None:
    names = [found["operationId"] for _, _, found in operations()]
    assert len(set(names)) == len(names)
    for reference in references(DOCUMENT):
        kind, name = re.fullmatch(r"#/components/(\w+)/(.+)", reference).groups()  # type: ignore[union-attr]
        assert name in DOCUMENT["components"][kind], reference


def test_every_route_is_in_it_and_needs_a_token_unless_it_is_a_probe_or_the_login_itself() -> None:
    written = {(path, method) for path, method, _ in operations()}
    for route in API_ROUTES:
        assert (BASE + route.path, route.method.lower()) in written
    for path, _, found in operations():
        is_free = found["security"] == []
        assert is_free == (path in ("/healthz", "/livez", "/readyz", "/api/v1/sessions")), path
        if not is_free:
            assert {"401", "403", "429"} <= set(found["responses"])


def test_every_refusal_is_a_problem() -> None:
    for path, method, found in operations():
        for code, answer in found["responses"].items():
            if code.startswith(("4", "5")):
                assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Problem"}, (
                    path,
                    method,
                )


def test_the_views_that_people_know_are_in_it() -> None:
    for view in (StatusView, NodeView, GpuView, QueueView, WorkloadView, WhyView):
        fields = {field.encode_name for field in msgspec.structs.fields(view)}
        assert set(DOCUMENT["components"]["schemas"][view.__name__]["properties"]) == fields


def test_the_types_of_the_page_are_made_from_it() -> None:
    generate = runpy.run_path(str(ROOT / "scripts/page_types.py"))["page_types"]
    written = (ROOT / "ui/src/api/views.ts").read_text()
    assert written == generate(), "ui/src/api/views.ts is stale: run .venv/bin/python scripts/page_types.py"
