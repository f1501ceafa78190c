"""The OpenAPI 3.1 document, made from the route table and the views, so that it cannot drift from them."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kaiwo import __version__
from kaiwo.api.endpoint import Route
from kaiwo.api.http.problems import JSON
from kaiwo.api.http.query_params import Param
from kaiwo.api.security.roles import Right
from kaiwo.api.views.answers import Problem

STATUS_WORDS = {
    200: "Success.",
    201: "Created.",
    400: "The request is invalid. The message names the field and says how to fix it.",
    401: "The token or the login is missing or wrong.",
    403: "This client may not do that.",
    404: "There is no object of that name.",
    408: "The body did not arrive in time.",
    409: "The request is valid, but a queue or the policy refuses it.",
    413: "The body is too large.",
    415: "The body has the wrong content type.",
    421: "This server does not answer for that host.",
    429: "Too many requests; try again later.",
    503: "Kaiwo is not ready, or the cluster cannot be reached.",
}
REF = "#/components/schemas/{name}"


def make_document(base: str, routes: Sequence[Route], outside: Sequence[Route]) -> dict[str, Any]:
    """`outside` routes are not below the base."""
    placed = [(base + route.path, route) for route in routes] + [(route.path, route) for route in outside]
    schemas, components = _schemas([route for _, route in placed])
    paths: dict[str, dict[str, Any]] = {}
    for path, route in placed:
        paths.setdefault(path, {})[route.method.lower()] = _operation(path, route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kaiwo",
            "version": __version__,
            "description": "Schedules GPU work. Amounts are integers: milli-GPU, milli-CPU, MiB, seconds.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token in KAIWO_HOME/token, or that of a session.",
                },
            },
        },
    }


def _schemas(routes: Iterable[Route]) -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    types: list[Any] = [Problem]
    for route in routes:
        for kind in (route.answer, route.body.schema if route.body else None):
            if kind is not None and not isinstance(kind, str | dict) and kind not in types:
                types.append(kind)
    references, components = msgspec.json.schema_components(types, ref_template=REF)
    return dict(zip(types, references, strict=True)), components


def _operation(path: str, route: Route, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    success = {"description": STATUS_WORDS[route.status], "content": _content(route.answer, schemas)}
    answers = {str(route.status): success} | {str(code): _problem(code, schemas) for code in route.statuses()}
    operation: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *re.findall(r"\w+", path.removeprefix("/api/v1"))]),
        "summary": route.summary,
        "security": [] if route.right is Right.NONE else [{"token": []}],
        "x-kaiwo-right": route.right.value,
        "responses": dict(sorted(answers.items())),
    }
    in_path = {"in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    parameters = [{"name": name, **in_path} for name in re.findall(r"{(\w+)}", path)]
    parameters += [_query_parameter(param) for param in route.all_params]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        schema = route.body.schema if isinstance(route.body.schema, dict) else schemas[route.body.schema]
        content = {kind: {"schema": schema} for kind in route.body.kinds}
        operation["requestBody"] = {"required": route.body.required, "content": content}
    return operation


def _content(answer: Any, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    if isinstance(answer, str):
        return {answer: {"schema": {"type": "string"}}}
    return {JSON: {"schema": answer if isinstance(answer, dict) else schemas[answer]}}


def _problem(code: int, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": STATUS_WORDS[code], "content": {JSON: {"schema": schemas[Problem]}}}
    if code in (429, 503):
        answer["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return answer


def _query_parameter(param: Param) -> dict[str, Any]:
    many = {"style": "form", "explode": True} if param.kind in ("words", "choices") else {}
    described = {"required": param.required, "description": param.help, "schema": param.schema()}
    return {"name": param.name, "in": "query", **described, **many}
