"""Who may do what, and what a browser, another site or another user cannot."""

import os
import re
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from kaiwo.api.application import context_of, make_app
from kaiwo.api.security.access import host_name
from kaiwo.api.security.browser_sessions import MAX_CODES, MAX_SESSIONS, Sessions
from kaiwo.api.security.rate_limits import RateLimit
from kaiwo.api.security.roles import AccessRole, Identity
from kaiwo.api.security.token_file import read_or_make_token
from kaiwo.api.settings import Settings
from kaiwo.model.errors import ClusterError
from tests.api.fake_loop import FakeLoop
from tests.waiting import run

WRITE = "/api/v1/logins"  # a write that needs nothing but the right
READ = "/api/v1/status"
SESSIONS = "/api/v1/sessions"


def ask(home: Path, method: str, path: str, settings: dict[str, Any] | None = None, **sent: Any) -> httpx.Response:
    """One request; TOKEN, SESSION, METRICS and AGENT in the headers stand for the real ones."""

    async def work() -> httpx.Response:
        app = make_app(FakeLoop(nodes=1), Settings(home=str(home), **(settings or {})))
        access = context_of(app).access
        secret = access.sessions.open(access.sessions.new_code(access.owner))
        real = {"TOKEN": access.token, "SESSION": str(secret), "METRICS": access.metrics_token}
        real["AGENT"] = access.agent_token
        headers = {"Host": "127.0.0.1:7600"}
        for name, value in sent.pop("headers", {}).items():
            headers[name] = re.sub("TOKEN|SESSION|METRICS|AGENT", lambda word: real[word[0]], value)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            return await client.request(method, path, headers=headers, **sent)

    return run(work())


BEARER = {"Authorization": "Bearer TOKEN"}
LOGIN = {"Authorization": "Bearer SESSION"}
SCRAPE = {"Authorization": "Bearer METRICS"}
AGENT = {"Authorization": "Bearer AGENT"}
OUTSIDE = {"host": "0.0.0.0"}
CHANGE = "/api/v1/workloads/default/none/hold"
EVERY_READ = (
    READ, "/api/v1/version", "/api/v1/workloads", "/api/v1/workloads/default/x", "/api/v1/workloads/default/x/logs",
    "/api/v1/workloads/default/x/why", "/api/v1/nodes", "/api/v1/gpus", "/api/v1/queues", "/api/v1/shares",
    "/api/v1/stream?view=status", "/api/v1/cycles", "/api/v1/agents", "/api/v1/openapi.json", "/openapi.json",
    "/metrics",
)  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "headers", "settings", "status"),
    [
        *(("GET", path, {}, {}, 401) for path in EVERY_READ),
        *(("HEAD", path, {}, {}, 401) for path in EVERY_READ),
        *(("GET", path, {}, OUTSIDE, 401) for path in EVERY_READ),
        ("GET", READ, {"Authorization": "Bearer wrong"}, {}, 401),
        ("GET", READ, BEARER, {}, 200),
        ("GET", READ, LOGIN, {}, 200),
        ("GET", READ, {"Cookie": "kaiwo_session=SESSION"}, {}, 401),  # no browser logs in by itself
        ("POST", WRITE, {}, {}, 401),
        ("POST", WRITE, BEARER, {}, 201),
        ("POST", WRITE, {"Authorization": "bearer TOKEN"}, {}, 201),
        ("POST", WRITE, {"Authorization": "Bearer TOKENx"}, {}, 401),
        ("POST", WRITE, {"Authorization": "Basic TOKEN"}, {}, 401),
        ("POST", WRITE, {"Authorization": "Bearer "}, {}, 401),
        ("POST", WRITE, {"Authorization": "TOKEN"}, {}, 401),
        ("POST", CHANGE, LOGIN, {}, 404),  # let through: there is no such workload
        ("POST", CHANGE, {"Cookie": "kaiwo_session=SESSION", "Origin": "http://127.0.0.1:7600"}, {}, 401),
        ("POST", CHANGE, {**LOGIN, "Sec-Fetch-Site": "cross-site"}, {}, 403),
        ("POST", WRITE, LOGIN, {}, 403),  # a login gives out no logins
        # tokens for one purpose
        ("GET", "/metrics", SCRAPE, {}, 200),
        ("GET", "/metrics", BEARER, {}, 200),
        ("GET", READ, SCRAPE, {}, 403),
        ("POST", WRITE, SCRAPE, {}, 403),
        ("GET", "/metrics", AGENT, {}, 403),
        ("GET", READ, AGENT, {}, 403),
        ("POST", "/api/agents/n/reports", SCRAPE, {}, 403),
        ("POST", "/api/agents/n/reports", LOGIN, {}, 403),
        # names
        ("GET", READ, {**BEARER, "Host": "localhost:7600"}, {}, 200),
        ("GET", READ, {**BEARER, "Host": "[::1]:7600"}, {}, 200),
        ("GET", READ, {**BEARER, "Host": "LOCALHOST"}, {}, 200),
        ("GET", READ, {"Host": "evil.example:7600"}, {}, 421),
        ("GET", READ, {"Host": "localhost.evil.example"}, {}, 421),
        ("GET", READ, {"Host": "10.0.0.5"}, {}, 421),
        ("GET", READ, {"Host": "127.0.0.1:7600@evil"}, {}, 421),
        ("GET", READ, {"Host": "127.0.0.1:evil"}, {}, 421),
        ("GET", READ, {"Host": "localhost/evil"}, {}, 421),
        ("GET", READ, {"Host": "[::1]evil"}, {}, 421),
        ("GET", READ, {"Host": "evil@localhost"}, {}, 421),
        ("GET", "/", {"Host": "evil.example"}, {}, 421),
        ("GET", READ, {**BEARER, "Host": "gpu.lab"}, {"names": ("gpu.lab",)}, 200),
        # the page is the same for all; its secret is kept for one address
        ("GET", "/", {}, {}, 200),
        ("GET", "/login?code=x", {}, {}, 200),
        ("GET", "/", {"Host": "localhost:7600"}, {}, 307),
        ("GET", "/login?code=x", {"Host": "localhost:7600"}, {}, 307),
        ("GET", "/", {"Host": "localhost:7600"}, OUTSIDE, 200),
        # other sites
        ("GET", READ, {**BEARER, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, {}, 403),
        ("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, {}, 200),
        # from outside
        ("GET", READ, BEARER, OUTSIDE, 200),
        ("GET", READ, {**BEARER, "Host": "10.0.0.5:7600"}, OUTSIDE, 200),
        ("GET", READ, {**BEARER, "Host": "evil.example"}, OUTSIDE, 421),
        ("GET", "/healthz", {}, OUTSIDE, 200),
        ("GET", "/livez", {}, OUTSIDE, 200),
        ("GET", "/readyz", {}, OUTSIDE, 200),
        ("GET", "/healthz", {}, {}, 200),
    ],
)  # fmt: skip
def test_the_access_matrix(
    tmp_path: Path, method: str, path: str, headers: dict[str, str], settings: dict[str, Any], status: int
) -> None:
    answer = ask(tmp_path, method, path, settings, headers=headers)
    assert answer.status_code == status, answer.text
    if status >= 400 and path.startswith("/api") and method != "HEAD":
        assert set(answer.json()) == {"kind", "message", "field"}


def test_every_answer_keeps_browsers_careful(tmp_path: Path) -> None:
    for path in (READ, "/", "/api/v1/nothing", "/healthz"):
        answer = ask(tmp_path, "GET", path)
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers
        assert "set-cookie" not in answer.headers


def test_a_code_logs_in_once_and_no_cookie_is_set(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path)))
        access = context_of(app).access
        code = access.login_path(access.owner).rpartition("=")[2]
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
            first = await browser.post(SESSIONS, json={"code": code})
            assert first.status_code == 201
            assert "set-cookie" not in first.headers
            login = {"Authorization": f"Bearer {first.json()['token']}"}
            assert (await browser.get(READ, headers=login)).status_code == 200
            late = await browser.post(SESSIONS, json={"code": code})
            assert (late.status_code, late.json()["kind"]) == (403, "forbidden")
            for body in ({}, {"code": 1}, {"code": ""}, [], "x"):
                assert (await browser.post(SESSIONS, json=body)).status_code in (400, 403)

    run(work())


def test_a_browser_logs_itself_out_and_the_owner_logs_all_out(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path)))
        access = context_of(app).access
        logins = [
            {"Authorization": f"Bearer {access.sessions.open(access.sessions.new_code(access.owner))}"} for _ in "123"
        ]
        unused = access.login_path(access.owner).rpartition("=")[2]
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            out = await client.delete(WRITE, headers=logins[0])
            assert out.json()["done"] == ["this browser is logged out"]
            assert [(await client.get(READ, headers=each)).status_code for each in logins] == [401, 200, 200]
            out = await client.delete(WRITE, headers={"Authorization": f"Bearer {access.token}"})
            assert out.json()["done"] == ["2 browsers logged out"]
            assert [(await client.get(READ, headers=each)).status_code for each in logins] == [401, 401, 401]
            assert (await client.post(SESSIONS, json={"code": unused})).status_code == 403

    run(work())


def test_guessing_is_slow_and_does_not_lock_out_the_owner(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path)))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            statuses = []
            for number in range(60):
                guess = {"Authorization": f"Bearer guess-{number}"}
                statuses.append((await client.post(WRITE, headers=guess)).status_code)
            assert statuses[0] == 401
            assert statuses[-1] == 429
            right = {"Authorization": f"Bearer {context_of(app).access.token}"}
            assert (await client.post(WRITE, headers=right)).status_code == 201

    run(work())


def test_too_many_writes_are_told_when_to_come_back(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path), writes_per_s=0.5, writes_burst=3))
        right = {"Authorization": f"Bearer {context_of(app).access.token}"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            answers = [await client.post(WRITE, headers=right) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
        assert int(answers[-1].headers["retry-after"]) >= 1

    run(work())


def test_a_token_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    token, told = read_or_make_token(str(home))
    assert told == ""
    assert stat.S_IMODE((home / "token").stat().st_mode) == 0o600
    assert read_or_make_token(str(home)) == (token, "")


def test_a_token_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    token, _ = read_or_make_token(str(tmp_path))
    (tmp_path / "token").chmod(0o644)
    fresh, told = read_or_make_token(str(tmp_path))
    assert fresh != token
    assert "could be read by other users" in told
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "short", "spaces in it " * 10, "\x00" * 50])
def test_a_broken_token_file_is_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(0o600)
    token, told = read_or_make_token(str(tmp_path))
    assert len(token) >= 32
    assert "no usable token" in told


def test_a_token_is_never_read_through_a_link_or_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("x" * 43)
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ClusterError, match="token"):
        read_or_make_token(str(tmp_path))
    (tmp_path / "token").unlink()
    os.mkdir(tmp_path / "token")
    with pytest.raises(ClusterError, match="token"):
        read_or_make_token(str(tmp_path))


def test_sessions_are_bounded_and_end() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    ada = Identity("ada", AccessRole.ADMIN, "token")
    codes = [sessions.new_code(ada) for _ in range(MAX_CODES + 1)]
    assert sessions.open(codes[0]) is None, "the oldest code made room"
    secret = sessions.open(codes[1])
    assert secret is not None
    assert sessions.open(codes[1]) is None
    found = sessions.find(secret)
    assert found is not None
    assert (found.name, found.role, found.credential.startswith("session-")) == ("ada", AccessRole.ADMIN, True)
    now[0] = 5 * 60 + 1
    assert sessions.open(codes[2]) is None, "a code is worth nothing after five minutes"
    assert sessions.find(secret) is not None
    now[0] = 30 * 86_400 + 1
    assert sessions.find(secret) is None
    first = sessions.open(sessions.new_code(ada))
    assert first is not None
    for _ in range(MAX_SESSIONS):
        sessions.open(sessions.new_code(ada))
    assert sessions.find(first) is None


def test_a_bucket_fills_again() -> None:
    now = [0.0]
    bucket = RateLimit(per_s=2, burst=3, clock=lambda: now[0])
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now[0] = 0.5
    assert [bucket.take(), bucket.take()] == [True, False]


@pytest.mark.parametrize(
    ("host", "name"),
    [("localhost:1", "localhost"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("A.b.", "a.b"), ("", ""), ("a", "a")],
)
def test_host_names(host: str, name: str) -> None:
    assert host_name(host) == name
