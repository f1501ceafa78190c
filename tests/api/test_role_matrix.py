"""Who is let in by which route: every route, every role, and every credential that is worth nothing.

The tables are written out by hand, to be read and judged. They are compared with the routes of the application, so
that a route without a row fails. A request counts as let in when it is answered with neither 401 nor 403; whether it
then succeeds is the matter of other tests.
"""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from kaiwo.api.application import API_ROUTES, OPENAPI
from kaiwo.api.routes import agents, health
from kaiwo.api.security.rate_limits import RateLimit
from tests.api.people import bearer, person, token_for
from tests.api.world import World, world
from tests.waiting import run

# w: the owner's token, a: admin, o: operator, u: user, v: viewer, s: scraper, m: KAIWO_HOME/metrics-token, g: agent
EVERYBODY, READERS, WORKERS, OPERATORS, ADMINS = "waouvsmg", "waouv", "waou", "wao", "wa"
LET_IN = {
    "GET /healthz": EVERYBODY,
    "GET /livez": EVERYBODY,
    "GET /readyz": EVERYBODY,
    "GET /metrics": "waouvsm",
    "POST /api/agents/{node}/reports": "wg",
    "POST /sessions": EVERYBODY,
    "GET /openapi.json": READERS,
    "GET /version": READERS,
    "GET /whoami": READERS,
    "GET /status": READERS,
    "GET /cycles": READERS,
    "GET /cycles/{number}": READERS,
    "GET /stream": READERS,
    "GET /nodes": READERS,
    "GET /nodes/{name}": READERS,
    "GET /gpus": READERS,
    "GET /gpus/use": READERS,
    "GET /gpus/fragments": READERS,
    "GET /agents": READERS,
    "GET /partitions": READERS,
    "GET /topology": READERS,
    "GET /recovery": READERS,
    "GET /scale": READERS,
    "GET /advice": READERS,
    "GET /capacity": READERS,
    "GET /trends": READERS,
    "GET /adjustments": READERS,
    "GET /series": READERS,
    "GET /series/measures": READERS,
    "GET /series/subjects": READERS,
    "GET /defragmentation": READERS,
    "GET /alerts": READERS,
    "GET /alerts/history": READERS,
    "GET /alerts/rules": READERS,
    "GET /alerts/silences": READERS,
    "POST /alerts/silences": OPERATORS,
    "DELETE /alerts/silences/{id}": OPERATORS,
    "GET /alerts/channels": OPERATORS,
    "POST /alerts/channels/{name}/test": ADMINS,
    "GET /queues": READERS,
    "GET /queues/{name}": READERS,
    "GET /shares": READERS,
    "GET /shares/{name}": READERS,
    "GET /reservations": READERS,
    "GET /reservations/{name}": READERS,
    "GET /workloads": READERS,
    "GET /workloads/counts": READERS,
    "GET /workloads/{namespace}/{name}": READERS,
    "GET /workloads/{namespace}/{name}/why": READERS,
    "GET /workloads/{namespace}/{name}/logs": READERS,
    "GET /workloads/{namespace}/{name}/attempts": READERS,
    "GET /workloads/{namespace}/{name}/console": READERS,
    "GET /workloads/{namespace}/{name}/history": READERS,
    "GET /history": READERS,
    "GET /report": READERS,
    "GET /idle": READERS,
    "GET /plugins": READERS,
    "GET /plugins/{name}": READERS,
    "POST /what-if": READERS,
    "GET /policy": READERS,
    "GET /workloads/{namespace}/{name}/manifest": READERS,
    "GET /queues/{name}/manifest": READERS,
    "GET /reservations/{name}/manifest": READERS,
    "POST /logins": READERS,
    "DELETE /logins": READERS,
    "POST /workloads": WORKERS,
    "DELETE /workloads/{namespace}/{name}": WORKERS,
    "POST /workloads/{namespace}/{name}/hold": WORKERS,
    "POST /workloads/{namespace}/{name}/release": WORKERS,
    "POST /workloads/{namespace}/{name}/requeue": WORKERS,
    "POST /workloads/{namespace}/{name}/checkpoint": WORKERS,
    "POST /workloads/{namespace}/{name}/progress": WORKERS,
    "POST /workloads/cancel": WORKERS,
    "POST /workloads/hold": WORKERS,
    "POST /workloads/release": WORKERS,
    "POST /workloads/requeue": WORKERS,
    "POST /workloads/set": WORKERS,
    "POST /manifests": WORKERS,
    "POST /manifests/delete": WORKERS,
    "POST /nodes/{name}/cordon": OPERATORS,
    "POST /nodes/{name}/uncordon": OPERATORS,
    "POST /nodes/{name}/drain": OPERATORS,
    "POST /nodes/{name}/fail": OPERATORS,
    "POST /nodes/{name}/restore": OPERATORS,
    "POST /reservations": OPERATORS,
    "DELETE /reservations/{name}": OPERATORS,
    "POST /defragmentation/plan": OPERATORS,
    "POST /defragmentation/run": OPERATORS,
    "POST /defragmentation/abort": OPERATORS,
    "GET /audit": OPERATORS,
    "POST /partitions/policy": ADMINS,
    "DELETE /demo": ADMINS,
    "POST /policy": ADMINS,
    "POST /policy/undo": ADMINS,
    "POST /plugins/{name}/enable": ADMINS,
    "POST /plugins/{name}/disable": ADMINS,
    "POST /plugins/{name}/reload": ADMINS,
    "GET /tokens": ADMINS,
    "POST /tokens": ADMINS,
    "POST /tokens/{id}/rotate": ADMINS,
    "DELETE /tokens/{id}": ADMINS,
}
NEED_NO_TOKEN = {"GET /healthz", "GET /livez", "GET /readyz", "POST /sessions"}
# A browser that logged in has the role of its token, but makes no other credentials and is no agent.
NOT_FOR_LOGINS = {"POST /logins", "POST /tokens", "POST /tokens/{id}/rotate", "POST /api/agents/{node}/reports"}
# Routes about one workload, when that is somebody else's.
LET_IN_TO_WORK_OF_OTHERS = {
    "GET /workloads/{namespace}/{name}": READERS,  # without its command
    "GET /workloads/{namespace}/{name}/history": READERS,
    "GET /workloads/{namespace}/{name}/why": READERS,
    "GET /workloads/{namespace}/{name}/attempts": READERS,
    "GET /workloads/{namespace}/{name}/logs": OPERATORS,
    "GET /workloads/{namespace}/{name}/manifest": OPERATORS,
    "GET /workloads/{namespace}/{name}/console": OPERATORS,
    "DELETE /workloads/{namespace}/{name}": OPERATORS,
    "POST /workloads/{namespace}/{name}/hold": OPERATORS,
    "POST /workloads/{namespace}/{name}/release": OPERATORS,
    "POST /workloads/{namespace}/{name}/requeue": OPERATORS,
    "POST /workloads/{namespace}/{name}/checkpoint": OPERATORS,
    "POST /workloads/{namespace}/{name}/progress": OPERATORS,
}
ROLES = {"a": "admin", "o": "operator", "u": "user", "v": "viewer", "s": "scraper"}
BAD = ("none", "wrong", "basic", "expired", "revoked", "rotated out", "ended login")
OUTSIDE = {f"{route.method} {route.path}" for route in (*health.ROUTES, agents.REPORT_ROUTE)}
ROUTES = OUTSIDE | {f"{route.method} {route.path}" for route in (*API_ROUTES, OPENAPI)}


def test_every_route_has_a_row() -> None:
    assert ROUTES - LET_IN.keys() == set(), "say in LET_IN who may use this route"
    assert LET_IN.keys() - ROUTES == set(), "there is no such route any more"
    about_one = {route for route in ROUTES if "/workloads/{namespace}/{name}" in route}
    assert about_one == LET_IN_TO_WORK_OF_OTHERS.keys(), "say who may use this route for the work of others"


def test_each_role_is_let_in_where_the_table_says(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, settings=MANY_WRITES) as kaiwo:
            tokens = await headers_of_roles(kaiwo)
            for row, letters in LET_IN.items():
                let_in = "".join(
                    [each for each in EVERYBODY if (await ask(kaiwo, row, tokens[each])) not in (401, 403)]
                )
                assert let_in == letters, row

    run(work())


def test_a_login_is_let_in_where_its_token_is_but_makes_no_other_credentials(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, settings=MANY_WRITES) as kaiwo:
            tokens = await headers_of_roles(kaiwo)
            for row, letters in LET_IN.items():
                for each in READERS:
                    login = await log_in(kaiwo, tokens[each])
                    is_in = (await ask(kaiwo, row, login)) not in (401, 403)
                    assert is_in == (each in letters and row not in NOT_FOR_LOGINS), (row, each)

    run(work())


@pytest.mark.parametrize("kind", BAD)
def test_a_credential_that_is_worth_nothing_is_let_in_nowhere(tmp_path: Path, kind: str) -> None:
    async def work() -> None:
        async with world(tmp_path, settings=MANY_WRITES) as kaiwo:
            kaiwo.context.access._failures = RateLimit(per_s=1e6, burst=1e6)  # the limit on guesses has its own test
            headers = await bad_headers(kaiwo, kind)
            for row in LET_IN:
                wanted = row in NEED_NO_TOKEN
                assert ((await ask(kaiwo, row, headers)) != 401) == wanted, row

    run(work())


def test_the_work_of_others_is_for_those_whom_the_table_names(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, settings=MANY_WRITES) as kaiwo:
            tokens = await headers_of_roles(kaiwo)
            bob = await person(kaiwo, "bob", "user", "*")
            for row, letters in LET_IN_TO_WORK_OF_OTHERS.items():
                let_in = ""
                for each in EVERYBODY:
                    name = f"{row.split()[0].lower()}-{row.rpartition('/')[2].strip('{}')}-{each}"
                    assert (await bob.submit(name, hold=True)).status_code == 201
                    path = row.replace("{namespace}/{name}", f"default/{name}")
                    let_in += each if (await ask(kaiwo, path, tokens[each])) not in (401, 403) else ""
                    assert (await ask(kaiwo, path, bob.headers)) not in (401, 403), "his own"
                assert let_in == letters, row

    run(work())


MANY_WRITES = {"writes_per_s": 1e6, "writes_burst": 1e6}


async def headers_of_roles(kaiwo: World) -> dict[str, dict[str, str]]:
    """The headers of each letter of the tables."""
    found = {
        letter: bearer(await token_for(kaiwo, role, role, *("*" * (letter == "u")))) for letter, role in ROLES.items()
    }
    access = kaiwo.context.access
    own = {"w": access.token, "m": access.metrics_token, "g": access.agent_token}
    return found | {letter: {"Authorization": f"Bearer {token}"} for letter, token in own.items()}


async def bad_headers(kaiwo: World, kind: str) -> dict[str, str]:
    """Of an administrator, so that nothing but the credential is wrong."""
    made = await token_for(kaiwo, "boss", "admin", expires_in_s=3600)
    headers, name = bearer(made), made["token"]["id"]
    if kind == "none":
        return {"Authorization": ""}
    if kind == "wrong":
        return {"Authorization": headers["Authorization"][:-1] + "."}
    if kind == "basic":
        return {"Authorization": headers["Authorization"].replace("Bearer", "Basic")}
    if kind == "expired":
        kaiwo.context.access.people._clock = lambda: time.time() + 3601
    elif kind == "revoked":
        await kaiwo.delete(f"/tokens/{name}")
    elif kind == "rotated out":
        await kaiwo.post(f"/tokens/{name}/rotate", {"grace_s": 0})
    elif kind == "ended login":
        headers = await log_in(kaiwo, headers)
        await kaiwo.delete(f"/tokens/{name}")
    return headers


async def log_in(kaiwo: World, headers: dict[str, str]) -> dict[str, str]:
    """The headers of a browser that logged in with these."""
    answer = await kaiwo.client.post("/api/v1/logins", headers=headers)
    opened = await kaiwo.client.post("/api/v1/sessions", json={"code": answer.json()["path"].rpartition("=")[2]})
    return {"Authorization": f"Bearer {opened.json()['token']}"}


async def ask(kaiwo: World, row: str, headers: dict[str, str]) -> int:
    """The status of one request; a stream is asked for its head only, because it would not end."""
    method, _, path = row.partition(" ")
    for name in ("namespace", "name", "node", "id"):
        path = path.replace(f"{{{name}}}", "none")
    forms = {"/sessions": {"code": "none"}, "/tokens": {"name": "new", "role": "viewer"}}
    sent: dict[str, Any] = {"json": forms[path]} if method == "POST" and path in forms else {}
    if path == "/stream":
        method, path = "HEAD", "/stream?view=status"
    where = path if row in OUTSIDE else f"/api/v1{path}"
    answer = await kaiwo.client.request(method, where, headers=headers, timeout=60, **sent)
    assert isinstance(answer, httpx.Response)
    if path == "/sessions":
        return 400 if answer.status_code in (403, 429) else answer.status_code  # a wrong code is no wrong credential
    return answer.status_code
