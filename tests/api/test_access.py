"""Who may do what, and what a browser, another site or another user cannot."""

import os
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from kaiwo.api.application import context_of, make_app
from kaiwo.api.security.access import COOKIE, RateLimit, host_name
from kaiwo.api.security.browser_sessions import MAX_CODES, MAX_SESSIONS, SESSION_S, Sessions
from kaiwo.api.security.token_file import read_or_make_token
from kaiwo.api.settings import Settings
from kaiwo.model.errors import ClusterError
from tests.api.fake_loop import FakeLoop
from tests.waiting import run

WRITE = "/api/v1/logins"  # a write that needs nothing but the right
READ = "/api/v1/status"


def ask(home: Path, method: str, path: str, settings: dict[str, Any] | None = None, **sent: Any) -> httpx.Response:
    """One request; TOKEN and COOKIE in the headers stand for the real ones."""

    async def work() -> httpx.Response:
        app = make_app(FakeLoop(nodes=1), Settings(home=str(home), **(settings or {})))
        access = context_of(app).access
        secret = access.sessions.open(access.sessions.new_code())
        headers = {"Host": "localhost:7600"} | {
            name: value.replace("TOKEN", access.token).replace("COOKIE", f"{COOKIE}={secret}")
            for name, value in sent.pop("headers", {}).items()
        }
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            return await client.request(method, path, headers=headers, **sent)

    return run(work())


BEARER = {"Authorization": "Bearer TOKEN"}
SAME = {"Cookie": "COOKIE", "Origin": "http://localhost:7600", "Sec-Fetch-Site": "same-origin"}
OUTSIDE = {"host": "0.0.0.0"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "settings", "status"),
    [
        ("GET", READ, {}, {}, 200),
        ("GET", READ, {"Authorization": "Bearer wrong"}, {}, 200),  # reading is free here, whatever is sent
        ("POST", WRITE, {}, {}, 401),
        ("POST", WRITE, BEARER, {}, 201),
        ("POST", WRITE, {"Authorization": "bearer TOKEN"}, {}, 201),
        ("POST", WRITE, {"Authorization": "Bearer TOKENx"}, {}, 401),
        ("POST", WRITE, {"Authorization": "Basic TOKEN"}, {}, 401),
        ("POST", WRITE, {"Authorization": "Bearer "}, {}, 401),
        ("POST", WRITE, {"Authorization": "TOKEN"}, {}, 401),
        ("POST", WRITE, {"Cookie": f"{COOKIE}=guess", "Origin": "http://localhost:7600"}, {}, 401),
        # a login may not give out logins: 403 comes from the endpoint, so the door let it through
        ("POST", "/api/v1/workloads/default/none/hold", SAME, {}, 404),
        ("POST", "/api/v1/workloads/default/none/hold", {**SAME, "Sec-Fetch-Site": "cross-site"}, {}, 403),
        ("POST", "/api/v1/workloads/default/none/hold", {**SAME, "Sec-Fetch-Site": "same-site"}, {}, 403),
        ("POST", "/api/v1/workloads/default/none/hold", {**SAME, "Origin": "http://evil.example"}, {}, 403),
        ("POST", "/api/v1/workloads/default/none/hold", {**SAME, "Origin": "http://localhost:9999"}, {}, 403),
        ("POST", "/api/v1/workloads/default/none/hold", {**SAME, "Origin": "null"}, {}, 403),
        ("POST", "/api/v1/workloads/default/none/hold", {"Cookie": "COOKIE"}, {}, 403),
        ("POST", WRITE, SAME, {}, 403),
        # names
        ("GET", READ, {"Host": "127.0.0.1:7600"}, {}, 200),
        ("GET", READ, {"Host": "[::1]:7600"}, {}, 200),
        ("GET", READ, {"Host": "LOCALHOST"}, {}, 200),
        ("GET", READ, {"Host": "evil.example:7600"}, {}, 421),
        ("GET", READ, {"Host": "localhost.evil.example"}, {}, 421),
        ("GET", READ, {"Host": "10.0.0.5"}, {}, 421),
        ("GET", READ, {"Host": "127.0.0.1:7600@evil"}, {}, 421),
        ("GET", READ, {"Host": "127.0.0.1:evil"}, {}, 421),
        ("GET", READ, {"Host": "localhost/evil"}, {}, 421),
        ("GET", READ, {"Host": "[::1]evil"}, {}, 421),
        ("GET", READ, {"Host": "evil@localhost"}, {}, 421),
        ("GET", "/", {"Host": "evil.example"}, {}, 421),
        ("GET", READ, {"Host": "gpu.lab"}, {"names": ("gpu.lab",)}, 200),
        # other sites
        ("GET", READ, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, {}, 403),
        ("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, {}, 200),
        # from outside, reading needs the right too
        ("GET", READ, {}, OUTSIDE, 401),
        ("GET", READ, BEARER, OUTSIDE, 200),
        ("GET", READ, {"Cookie": "COOKIE"}, OUTSIDE, 200),
        ("GET", READ, {**BEARER, "Host": "10.0.0.5:7600"}, OUTSIDE, 200),
        ("GET", READ, {**BEARER, "Host": "evil.example"}, OUTSIDE, 421),
        ("GET", "/metrics", {}, OUTSIDE, 401),
        ("GET", "/healthz", {}, OUTSIDE, 200),
        ("GET", "/livez", {}, OUTSIDE, 200),
        ("GET", "/openapi.json", {}, OUTSIDE, 401),
        ("GET", "/readyz", {}, OUTSIDE, 200),
        ("GET", "/", {}, OUTSIDE, 200),
    ],
)  # fmt: skip
def test_the_access_matrix(
    tmp_path: Path, method: str, path: str, headers: dict[str, str], settings: dict[str, Any], status: int
) -> None:
    answer = ask(tmp_path, method, path, settings, headers=headers)
    assert answer.status_code == status, answer.text
    if status >= 400 and path.startswith("/api"):
        assert set(answer.json()) == {"kind", "message", "field"}


def test_every_answer_keeps_browsers_careful(tmp_path: Path) -> None:
    for path in (READ, "/", "/api/v1/nothing", "/healthz"):
        answer = ask(tmp_path, "GET", path)
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers


def test_a_code_logs_in_once_and_the_cookie_is_out_of_reach(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path)))
        path = context_of(app).access.login_path()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as browser:
            first = await browser.get(path)
            assert (first.status_code, first.headers["location"]) == (303, "/")
            cookie = first.headers["set-cookie"]
            assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/"))
            again = await browser.get(path)
            assert again.status_code == 303, "whoever is logged in already is sent to the page"
            assert "set-cookie" not in again.headers
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as stranger:
            late = await stranger.get(path)
            assert late.status_code == 403
            assert "set-cookie" not in late.headers

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
    codes = [sessions.new_code() for _ in range(MAX_CODES + 1)]
    assert sessions.open(codes[0]) is None, "the oldest code made room"
    secret = sessions.open(codes[1])
    assert secret is not None
    assert sessions.open(codes[1]) is None
    assert sessions.name_of(secret) is not None
    now[0] = SESSION_S + 1
    assert sessions.name_of(secret) is None
    first = sessions.open(sessions.new_code())
    assert first is not None
    for _ in range(MAX_SESSIONS):
        sessions.open(sessions.new_code())
    assert sessions.name_of(first) is None


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
