"""People of a Kubernetes cluster: their own tokens let them in, and RBAC grants rights, on a real API server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import RunningScheduler, scheduling
from kaiwo.clusters.kubernetes import person_tokens
from kaiwo.clusters.kubernetes.client import Client, ClusterAccess
from kaiwo.clusters.kubernetes.client.kubeconfig import read_kubeconfig
from kaiwo.clusters.kubernetes.person_tokens import GOOD_S, GRANTED_BY, PersonTokens
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.chart import rendered
from tests.clusters.kubernetes.installed_webhooks import Installed, installed
from tests.clusters.kubernetes.kubectl_cluster import Kubectl
from tests.controlplane.plane import MissingError, Plane, find_programs, free_ports
from tests.waiting import PATIENCE_S, run

NAMESPACE = "t-people"
ROLES = ("viewer", "user", "operator", "admin")
# For one route of each right: who is let in.
LET_IN = {
    ("GET", "/api/v1/status"): "viewer user operator admin",
    ("GET", "/metrics"): "viewer user operator admin",
    ("POST", "/api/v1/workloads/default/none/hold"): "user operator admin",
    ("POST", "/api/v1/nodes/none/cordon"): "operator admin",
    ("GET", "/api/v1/audit"): "operator admin",
    ("GET", "/api/v1/tokens"): "admin",
    ("POST", "/api/v1/partitions/policy"): "admin",
}


class Site(NamedTuple):
    kaiwo: RunningScheduler
    url: str

    async def ask(self, token: str, path: str = "/api/v1/status", method: str = "GET", **sent: Any) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, self.url + path, **sent) as answer,
        ):
            return answer.status, await answer.text()

    def forget_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As if a minute had passed."""
        reviewer = self.kaiwo.context.access.person_tokens
        assert isinstance(reviewer, PersonTokens)
        clock = reviewer._clock
        monkeypatch.setattr(reviewer, "_clock", lambda: clock() + GOOD_S + 1)


@pytest.fixture(scope="module")
def release(plane: Plane) -> Iterator[Installed]:
    """The chart, with an account for each role and one without any."""
    try:
        find_programs("helm")
    except MissingError as error:
        pytest.skip(str(error))
    bindings = [
        f"--set=people.bindings[{at}].role={role},people.bindings[{at}].kind=ServiceAccount,people.bindings[{at}].name={role}"
        for at, role in enumerate(ROLES)
    ]
    with installed(plane, NAMESPACE, *bindings) as found:
        for name in (*ROLES, "nobody"):
            plane.kubectl("create", "serviceaccount", name, f"--namespace={NAMESPACE}")
        yield found


@asynccontextmanager
async def running(release: Installed, home: Path) -> AsyncIterator[Site]:
    """What the Deployment runs, with the rights of its account and no more."""
    options = SchedulerOptions(
        str(home), port=0, kubeconfig=str(release.kubeconfig), lease_namespace=NAMESPACE, leader_elect=False,
        kubernetes_tokens=True,
    )  # fmt: skip
    async with client_for(release.plane.kubeconfig) as client:
        kubectl = Kubectl(client)
        await kubectl.clean()
        await kubectl.node("node-1")
        async with scheduling(options) as kaiwo:
            yield Site(kaiwo, kaiwo.url)
        await kubectl.clean()


def token_of(plane: Plane, account: str, *words: str) -> str:
    return plane.kubectl("create", "token", account, f"--namespace={NAMESPACE}", *words).strip()


def user(account: str) -> str:
    return f"system:serviceaccount:{NAMESPACE}:{account}"


def test_each_role_of_the_chart_is_let_in_where_the_table_says(release: Installed, tmp_path: Path) -> None:
    tokens = {role: token_of(release.plane, role) for role in ROLES}

    async def test() -> None:
        async with running(release, tmp_path) as site:
            for (method, path), roles in LET_IN.items():
                let_in = [role for role in ROLES if (await site.ask(tokens[role], path, method))[0] not in (401, 403)]
                assert " ".join(let_in) == roles, path
            _, text = await site.ask(tokens["user"], "/api/v1/whoami")
            assert f'"name":"{user("user")}","role":"user"' in text
            status, text = await site.ask(tokens["viewer"], "/api/v1/nodes/none/cordon", "POST")
            assert status == 403
            assert "this needs `update` on `nodes.kaiwo.ai` (Kubernetes RBAC): ask an administrator of the" in text
            form = {"name": "ada", "role": "viewer"}
            status, text = await site.ask(tokens["admin"], "/api/v1/tokens", "POST", json=form)
            assert (status, "use their Kubernetes tokens" in text) == (409, True)

    run(test())


def test_whoever_has_no_right_or_no_token_of_this_cluster_stays_outside(release: Installed, tmp_path: Path) -> None:
    plane = release.plane
    tokens = {
        "without a right": (token_of(plane, "nobody"), 403),
        "for another audience": (token_of(plane, "admin", "--audience=somebody-else"), 401),
        "garbage": ("abc.def.ghi", 401),
        "very long": ("x" * 20_000, 401),
        "almost right": (token_of(plane, "admin")[:-3] + "AAA", 401),
    }

    async def test() -> None:
        async with running(release, tmp_path) as site:
            for kind, (token, status) in tokens.items():
                assert (await site.ask(token))[0] == status or kind == "very long", kind
            _, text = await site.ask(tokens["without a right"][0])
            assert f"{user('nobody')} may not read; this needs `get` on `workloads.kaiwo.ai`" in text
            assert (await site.ask(site.kaiwo.context.access.token))[0] == 200, "the owner's token, for kubectl exec"
            logged = (tmp_path / "api.log").read_text() if (tmp_path / "api.log").exists() else ""
            assert not any(token in logged for token, _ in tokens.values())

    run(test())


def test_a_person_is_asked_about_once_a_minute_and_guesses_are_bounded(
    release: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, asked = token_of(release.plane, "viewer"), count_reviews(monkeypatch)

    async def test() -> None:
        async with running(release, tmp_path) as site:
            before = asked()
            answers = await asyncio.gather(*(site.ask(token) for _ in range(20)))
            assert {status for status, _ in answers} == {200}
            assert asked() - before == 1 + len(GRANTED_BY)
            site.forget_answers(monkeypatch)
            assert (await site.ask(token))[0] == 200
            assert asked() - before == 2 * (1 + len(GRANTED_BY))
            before = asked()
            statuses = [(await site.ask(f"guess-{number}"))[0] for number in range(200)]
            assert statuses[0] == 401
            assert statuses[-1] == 429
            assert asked() - before < 200, "guesses do not flood the API server"
            assert (await site.ask(token))[0] == 200, "and delay nobody who is known"

    run(test())


def count_reviews(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    count = [0]
    post = PersonTokens._post

    async def counted(self: PersonTokens, *args: Any) -> bytes:
        count[0] += 1
        return await post(self, *args)

    monkeypatch.setattr(PersonTokens, "_post", counted)
    return lambda: count[0]


def test_a_right_that_is_taken_away_and_an_account_that_is_gone_end_the_login(
    release: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = release.plane
    plane.kubectl("create", "serviceaccount", "leaver", f"--namespace={NAMESPACE}")
    role = f"--clusterrole={role_name('viewer')}"
    plane.kubectl("create", "clusterrolebinding", "t-people-leaver", role, f"--serviceaccount={NAMESPACE}:leaver")
    token = token_of(plane, "leaver")

    async def until_status(site: Site, secret: str, status: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await site.ask(secret))[0] != status:
                site.forget_answers(monkeypatch)
                await asyncio.sleep(0.1)

    async def test() -> None:
        async with running(release, tmp_path) as site:
            await until_status(site, token, 200)
            code = yaml.safe_load((await site.ask(token, "/api/v1/logins", "POST"))[1])["path"].rpartition("=")[2]
            _, text = await site.ask("", "/api/v1/sessions", "POST", json={"code": code})
            login = yaml.safe_load(text)["token"]
            assert (await site.ask(login))[0] == 200
            await asyncio.to_thread(plane.kubectl, "delete", "clusterrolebinding", "t-people-leaver")
            await until_status(site, login, 403)
            await asyncio.to_thread(plane.kubectl, "delete", "serviceaccount", "leaver", f"--namespace={NAMESPACE}")
            await until_status(site, login, 401)
            await until_status(site, token, 401)

    run(test())


def test_while_the_api_server_is_away_nobody_is_let_in_and_is_told_why(
    release: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = token_of(release.plane, "admin")
    monkeypatch.setattr(person_tokens, "ANSWER_S", 2.0)

    async def test() -> None:
        async with running(release, tmp_path) as site:
            away = Client(dead_server(release))
            site.kaiwo.context.access.person_tokens = PersonTokens(away)
            try:
                for path, method in (("/api/v1/status", "GET"), ("/api/v1/nodes/node-1/cordon", "POST")):
                    status, text = await site.ask(token, path, method)
                    assert status == 503, text
                    assert "the Kubernetes API server could not say who you are" in text
                    assert "nobody is let in until it answers" in text
            finally:
                await away.close()

    run(test())


def dead_server(release: Installed) -> ClusterAccess:
    """The same account, at a port where nobody listens."""
    (port,) = free_ports(1)
    return read_kubeconfig(release.kubeconfig)._replace(server=f"https://127.0.0.1:{port}")


def role_name(role: str) -> str:
    return f"{NAMESPACE}:kaiwo-{role}"


def test_the_roles_of_the_chart_grant_what_the_scheduler_asks_about() -> None:
    roles = {each["metadata"]["name"].rpartition("-")[2]: each for each in rendered() if each["kind"] == "ClusterRole"}
    granted = {
        role: {
            (verb, resource)
            for rule in roles[role]["rules"]
            for verb in rule["verbs"]
            for resource in rule["resources"]
        }
        for role in ROLES
    }
    assert granted["admin"] == {tuple(by) for by in GRANTED_BY.values()}
    assert granted["viewer"] < granted["user"] < granted["operator"] < granted["admin"]
    assert not [each for each in rendered() if each["kind"] == "ClusterRoleBinding" and "viewer" in str(each)]
