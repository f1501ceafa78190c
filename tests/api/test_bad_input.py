"""What people get wrong: one clear sentence each, the right status, and nothing changes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kaiwo.api.http.query_params import write_cursor
from kaiwo.api.views.answers import Problem
from tests.api.world import World, decode, world
from tests.waiting import run

LONG = "x" * 501

QUERIES = [
    ("/workloads?limit=0", "limit"),
    ("/workloads?limit=501", "limit"),
    ("/workloads?limit=ten", "limit"),
    ("/workloads?limit=", "limit"),
    ("/workloads?limit=1&limit=2", "limit"),
    ("/workloads?limit=1e2", "limit"),
    ("/workloads?limit=999999999999999999999999", "limit"),
    ("/workloads?sort=colour", "sort"),
    ("/workloads?sort=--name", "sort"),
    ("/workloads?state=runing", "state"),
    ("/workloads?state=running,", "state"),
    ("/workloads?label=novalue", "label"),
    ("/workloads?label==x", "label"),
    ("/workloads?after=%21%21", "after"),
    ("/workloads?after=abcd", "after"),
    (f"/workloads?sort=name&after={write_cursor(['-name', 0, 'default/x'])}", "after"),
    (f"/workloads?after={write_cursor(['-submitted', 1.5, 'x'])}", "after"),
    ("/workloads?q=", "q"),
    (f"/workloads?q={LONG}", "q"),
    ("/workloads?q=%00", "q"),
    ("/workloads?colour=red", "colour"),
    ("/nodes?limit=2001", "limit"),
    ("/nodes?queue=lab", "queue"),
    (f"/nodes?after={write_cursor(5)}", "after"),
    ("/gpus?limit=1001", "limit"),
    ("/gpus?free=yes", "free"),
    (f"/gpus?after={write_cursor(['n', 'x'])}", "after"),
    ("/queues?limit=5", "limit"),
    ("/status?x=1", "x"),
    ("/cycles?limit=0", "limit"),
    ("/cycles?after=abcd", "after"),
    ("/stream", "view"),
    ("/stream?view=colours", "view"),
    ("/stream?view=queues&limit=5", "limit"),
    ("/stream?view=gpus&state=running", "state"),
    ("/workloads/default/x/logs?tail=-1", "tail"),
    ("/workloads/default/x/logs?follow=1", "follow"),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All queries against one server: starting one for each would take a minute."""

    async def work(home: Path) -> dict[str, Any]:
        async with world(home) as kaiwo:
            return {path: await kaiwo.client.get(f"/api/v1{path}") for path, _ in QUERIES}

    return run(work(tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize(("path", "field"), QUERIES)
def test_a_wrong_query_names_the_field(answers: dict[str, Any], path: str, field: str) -> None:
    answer = answers[path]
    problem = decode(answer, Problem)
    assert (answer.status_code, problem.kind, problem.field) == (400, "invalid", field), problem
    assert "\n" not in problem.message
    assert len(problem.message) > 20


BODIES: list[tuple[str, dict[str, Any], int]] = [
    ("/workloads", {"content": b"", "type": "application/json"}, 400),
    ("/workloads", {"content": b"{", "type": "application/json"}, 400),
    ("/workloads", {"content": b"[]", "type": "application/json"}, 400),
    ("/workloads", {"content": b'"x"', "type": "application/json"}, 400),
    ("/workloads", {"content": b"[" * 100_000, "type": "application/json"}, 400),
    ("/workloads", {"content": b'{"name": "\xff"}', "type": "application/json"}, 400),
    ("/workloads", {"content": b"{}", "type": "application/json"}, 400),
    ("/workloads", {"content": b'{"name": "x", "gpu": 1}', "type": "application/json"}, 400),
    ("/workloads", {"content": b'{"name": "x", "gpuFraction": "1.5"}', "type": "application/json"}, 400),
    ("/workloads", {"content": b'{"name": "x", "memory": "-1Gi"}', "type": "application/json"}, 400),
    ("/workloads", {"content": b'{"name": "x", "pods": 0}', "type": "application/json"}, 400),
    ("/workloads", {"content": b'{"name": "x", "gpus": 1, "gpus": 8}', "type": "application/json"}, 400),
    ("/workloads", {"content": b'{"name": "x", "env": {"A": "1", "A": "2"}}', "type": "application/json"}, 400),
    ("/manifests", {"content": b"name: x\ngpus: 1\ngpus: 8", "type": "application/yaml"}, 400),
    ("/nodes/node-0/cordon", {"content": b'{"reason": "x", "reason": "y"}', "type": "application/json"}, 400),
    ("/workloads", {"content": b'{"name": "x", "gpus": 1e400}', "type": "application/json"}, 400),
    ("/workloads", {"content": b'{"name": "x", "queue": "nowhere"}', "type": "application/json"}, 409),
    ("/workloads", {"content": b'{"name": "x", "after": ["ghost"]}', "type": "application/json"}, 400),
    ("/workloads", {"content": b'{"name": "here"}', "type": "application/json"}, 400),
    ("/workloads", {"content": b'{"name": "x"}', "type": "text/plain"}, 415),
    ("/workloads", {"content": b'{"name": "x"}', "type": ""}, 415),
    ("/workloads?dry_run=maybe", {"content": b'{"name": "x"}', "type": "application/json"}, 400),
    ("/workloads", {"content": b" " * 1_000_001, "type": "application/json"}, 413),
    ("/manifests", {"content": b"x" * 1_000_001, "type": "application/yaml"}, 413),
    ("/manifests", {"content": b"\x00\xff" * 400_000, "type": "application/yaml"}, 400),
    ("/manifests", {"content": b"a: [", "type": "application/yaml"}, 400),
    ("/manifests", {"content": b"- 1\n- 2", "type": "application/yaml"}, 400),
    ("/manifests", {"content": b"kind: Elephant", "type": "application/yaml"}, 400),
    ("/manifests", {"content": b"name: x", "type": "application/x-www-form-urlencoded"}, 415),
    ("/manifests/delete", {"content": b"name: ghost", "type": "application/yaml"}, 404),
    ("/nodes/node-0/cordon", {"content": b'{"reson": "x"}', "type": "application/json"}, 400),
    ("/nodes/node-0/cordon", {"content": b'{"reason": 5}', "type": "application/json"}, 400),
    ("/nodes/node-0/cordon", {"content": b'{"reason": null}', "type": "application/json"}, 400),
    ("/nodes/node-9/cordon", {"content": b"", "type": ""}, 404),
    ("/workloads/default/ghost/hold", {"content": b"", "type": ""}, 404),
]


def test_wrong_bodies_change_nothing(tmp_path: Path) -> None:
    async def picture_of(kaiwo: World) -> list[bytes]:
        lists = [await kaiwo.get(path) for path in ("/workloads", "/nodes", "/queues")]
        return [answer.content for answer in lists]

    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("here", hold=True)
            before = await picture_of(kaiwo)
            for path, body, status in BODIES:
                kind = {"Content-Type": body["type"]} if body["type"] else {}
                answer = await kaiwo.client.post(
                    f"/api/v1{path}", content=body["content"], headers={**kaiwo.bearer, **kind}
                )
                problem = decode(answer, Problem)
                assert answer.status_code == status, (path, body["content"][:60], problem)
                assert "\n" not in problem.message
                assert len(problem.message) < 600
            assert await picture_of(kaiwo) == before

    run(work())


def test_a_key_that_stands_twice_is_named(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            body, kind = b'{"name": "x", "gpus": 1, "gpus": 8}', {"Content-Type": "application/json"}
            answer = await kaiwo.client.post("/api/v1/workloads", content=body, headers={**kaiwo.bearer, **kind})
            problem = decode(answer, Problem)
            assert (answer.status_code, problem.field) == (400, "gpus")
            assert problem.message == "gpus appears twice in one mapping; keep one of the two"

    run(work())


def test_wrong_methods_and_addresses_are_told_what_there_is(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            wrong = await kaiwo.client.put("/api/v1/workloads")
            assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
            assert decode(wrong, Problem).kind == "invalid"
            for path in ("/api/v1/nothing", "/api/v1/workloads/", "/api/v2/status", "/api/v1/", "/api/v1"):
                lost = await kaiwo.client.get(path)
                assert lost.status_code == 404, path
                assert decode(lost, Problem).kind == "not-found"
            options = await kaiwo.client.options("/api/v1/workloads/default/x")
            assert (options.status_code, options.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS")
            head = await kaiwo.client.head("/api/v1/status")
            assert (head.status_code, head.content) == (200, b"")
            assert int(head.headers["content-length"]) > 100
            assert (await kaiwo.client.head("/api/v1/stream?view=status")).status_code == 200
            assert (await kaiwo.client.post("/anything")).status_code == 405

    run(work())


def test_before_the_first_state_it_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            kaiwo.loop.ready = False
            for path, status in (
                ("/api/v1/status", 503),
                ("/api/v1/version", 200),
                ("/readyz", 503),
                ("/healthz", 200),
                ("/livez", 200),
            ):
                answer = await kaiwo.client.get(path)
                assert answer.status_code == status, path
                if status == 503:
                    assert answer.headers["retry-after"] == "1"
                    assert decode(answer, Problem).kind == "broken"

    run(work())


def test_a_name_that_there_is_not_is_answered_with_one_that_may_be_meant(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("train-7", hold=True)
            await kaiwo.submit("probe", namespace="team", hold=True)
            for asked, meant in (("default/tarin-7", "train-7"), ("default/probe", "team/probe")):
                problem = (await kaiwo.get(f"/workloads/{asked}/why")).json()
                assert problem["message"] == f"there is no workload '{asked}'; did you mean '{meant}'?"
            assert "did you mean" not in (await kaiwo.get("/workloads/default/nothing-like-it")).json()["message"]

    run(work())


def test_a_request_with_two_lengths_is_refused_and_what_follows_it_is_not_read(tmp_path: Path) -> None:
    """Behind a proxy that believes Content-Length, the second request would be part of the first one's body."""

    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            host, port = it.client.base_url.host, it.client.base_url.port
            reader, writer = await asyncio.open_connection(host, port)
            head = f"Host: {host}\r\nAuthorization: {it.bearer['Authorization']}\r\n"
            second = f"GET /api/v1/status HTTP/1.1\r\n{head}\r\n"
            first = f"POST /api/v1/logins HTTP/1.1\r\n{head}Content-Length: {5 + len(second)}\r\n"
            writer.write(f"{first}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}".encode())
            answers = await asyncio.wait_for(reader.read(), 30)
            writer.close()
            assert answers.startswith(b"HTTP/1.1 400")
            assert answers.count(b"HTTP/1.1 ") == 1

    run(story())
