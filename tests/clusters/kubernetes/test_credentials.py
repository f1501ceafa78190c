"""Who we are to an API server, and whom we trust."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from kaiwo.cli.main import main
from kaiwo.clusters.kubernetes.client import ApiError, Client, ClusterAccess, UnreachableError, find_access
from kaiwo.clusters.kubernetes.client.connection import check_connection
from kaiwo.clusters.kubernetes.client.credentials import TokenFile, Trust
from kaiwo.clusters.kubernetes.client.kubeconfig import in_cluster, read_kubeconfig
from kaiwo.model.errors import ClusterError, ConfigError
from tests.clusters.kubernetes.api_client import client_for
from tests.controlplane.plane import TOKEN, Plane
from tests.waiting import run

VERSION = "/version"
SECRETS = "/api/v1/namespaces/default/secrets"  # only somebody who is known may read them


async def _reads(kubeconfig: Path) -> bool:
    async with client_for(kubeconfig) as client:
        return b"SecretList" in await client.read(SECRETS, tries=1)


def _plugin(folder: Path, answers: list[dict[str, object]]) -> str:
    """A program that prints one answer after the other, and the lines of a kubeconfig that name it."""
    script = folder / "plugin.py"
    script.write_text(
        "import json, os, pathlib, sys\n"
        f"answers = json.loads({json.dumps(json.dumps(answers))})\n"
        f"count = pathlib.Path({str(folder / 'count')!r})\n"
        "n = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(n + 1))\n"
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential'\n"
        "print(json.dumps({'status': answers[min(n, len(answers) - 1)]}))\n"
    )
    return (
        "exec:\n      apiVersion: client.authentication.k8s.io/v1\n"
        f"      command: {sys.executable}\n      args: [{script}]\n      interactiveMode: Never"
    )


def test_a_client_certificate_opens_the_door(plane: Plane) -> None:
    assert run(_reads(plane.kubeconfig))


def test_a_token_opens_the_door_and_a_wrong_one_does_not(plane: Plane) -> None:
    assert run(_reads(plane.write_kubeconfig("by-token", f"token: {TOKEN}")))
    with pytest.raises(ApiError, match="Unauthorized") as refused:
        run(_reads(plane.write_kubeconfig("by-wrong-token", "token: guessed")))
    assert refused.value.code == 401


def test_an_exec_plugins_token_is_kept_until_it_is_refused(plane: Plane, tmp_path: Path) -> None:
    lines = _plugin(tmp_path, [{"token": "stale"}, {"token": TOKEN}])

    async def test() -> None:
        async with client_for(plane.write_kubeconfig("by-plugin", lines)) as client:
            for _ in range(3):
                await client.read(SECRETS, tries=1)

    run(test())
    assert (tmp_path / "count").read_text() == "2"  # the stale one was refused, the next one stayed good


def test_an_exec_plugins_token_is_replaced_before_it_expires(plane: Plane, tmp_path: Path) -> None:
    soon = {"token": TOKEN, "expirationTimestamp": "2020-01-01T00:00:00Z"}
    lines = _plugin(tmp_path, [soon, {"token": TOKEN, "expirationTimestamp": "2999-01-01T00:00:00Z"}])

    async def test() -> None:
        async with client_for(plane.write_kubeconfig("by-expiring", lines)) as client:
            for _ in range(3):
                await client.read(SECRETS, tries=1)

    run(test())
    assert (tmp_path / "count").read_text() == "2"


def test_an_exec_plugin_may_give_a_certificate(plane: Plane, tmp_path: Path) -> None:
    certificate, key = ((plane.folder / f"admin.{end}").read_text() for end in ("crt", "key"))
    lines = _plugin(tmp_path, [{"clientCertificateData": certificate, "clientKeyData": key}])
    assert run(_reads(plane.write_kubeconfig("by-plugin-certificate", lines)))


def test_a_plugin_that_fails_is_named(plane: Plane, tmp_path: Path) -> None:
    lines = "exec: {command: ./nowhere, installHint: install it with care}"
    with pytest.raises(ConfigError, match=r"nowhere cannot be run .*install it with care"):
        run(_reads(plane.write_kubeconfig("by-nobody", lines)))
    with pytest.raises(ClusterError, match="ended with 1"):
        run(_reads(plane.write_kubeconfig("by-false", "exec: {command: 'false'}")))


def test_a_plugin_that_hangs_is_named_with_its_patience_by_whoever_asks_last(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kaiwo.clusters.kubernetes.client.credentials.EXEC_TIMEOUT_S", 1.0)
    access = read_kubeconfig(plane.write_kubeconfig("by-hanging", "exec: {command: sleep, args: ['60']}"))

    async def test() -> str:
        with pytest.raises(TimeoutError):  # as an election does, which has less patience
            async with asyncio.timeout(0.2):
                await check_connection(access)
        return await check_connection(access)

    assert "the exec plugin sleep gave no answer in 1 s" in run(test())


def test_the_first_word_names_credentials_that_are_not_taken_and_a_stranger(plane: Plane, tmp_path: Path) -> None:
    wrong = read_kubeconfig(plane.write_kubeconfig("by-bad-token", "token: guessed"))
    assert "does not take the credentials" in run(check_connection(wrong))
    good = read_kubeconfig(plane.kubeconfig)
    assert run(check_connection(good)) == ""
    assert "did not sign" in run(check_connection(good._replace(trust=Trust())))
    assert "cannot be reached" in run(check_connection(good._replace(server="https://127.0.0.1:1")))


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_certificate_authority_that_cannot_be_read_is_named_before_anything_is_asked(
    tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "its-ca.crt").write_text(text)
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1', certificate-authority: its-ca.crt}}]\n"
    )
    with pytest.raises(ConfigError, match=r"its-ca\.crt, which cannot be read"):
        read_kubeconfig(kubeconfig)
    assert main(["scheduler", "--kubeconfig", str(kubeconfig), "--home", str(tmp_path / "home")]) == 2


def test_a_replaced_token_file_counts_as_soon_as_the_old_token_is_refused(plane: Plane, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old\n")

    async def test() -> None:
        access = ClusterAccess(plane.server, Trust(str(plane.folder / "ca.crt")), TokenFile(str(tmp_path / "token")))
        client = Client(access)
        try:
            with pytest.raises(ApiError, match="Unauthorized"):
                await client.read(SECRETS, tries=1)
            (tmp_path / "token").write_text(TOKEN)
            await client.read(SECRETS, tries=1)
        finally:
            await client.close()

    run(test())


def test_a_pod_finds_its_own_files(plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(plane.port))
    (tmp_path / "ca.crt").write_bytes((plane.folder / "ca.crt").read_bytes())
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "namespace").write_text("kaiwo-system")

    async def test() -> None:
        access = find_access(pod_files=tmp_path)
        assert access.namespace == "kaiwo-system"
        client = Client(access)
        try:
            await client.read(SECRETS, tries=1)
        finally:
            await client.close()

    run(test())


def test_a_server_with_a_strangers_certificate_is_not_spoken_to(plane: Plane, tmp_path: Path) -> None:
    async def test(trust: Trust) -> None:
        client = Client(ClusterAccess(plane.server, trust, TokenFile(str(tmp_path / "token"))))
        try:
            await client.read(VERSION, tries=1)
        finally:
            await client.close()

    (tmp_path / "token").write_text(TOKEN)
    with pytest.raises(UnreachableError, match="certificate"):
        run(test(Trust()))
    with pytest.raises(UnreachableError, match=r"certificate|Hostname"):
        run(test(Trust(str(plane.folder / "ca.crt"), server_name="somebody.else")))
    run(test(Trust(str(plane.folder / "ca.crt"), server_name="localhost")))
    run(test(Trust(is_insecure=True)))


USER = """
contexts: [{name: a, context: {cluster: c, user: u}}]
current-context: a
clusters: [{name: c, cluster: {server: "https://127.0.0.1"}}]
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not YAML"),
        ("current-context: a", "no context 'a'"),
        ("contexts: [{name: a, context: {cluster: c}}]\ncurrent-context: a", "has no server"),
        ("clusters: 3", "cannot be used"),
        (USER, "the user 'u'"),
        (USER + "users: [{name: u, user: {username: me}}]", "username is not supported"),
        (USER + "users: [{name: u, user: {client-certificate-data: '###'}}]", "not base64"),
        (USER + "users: [{name: u, user: {client-key-data: YQ==}}]", "needs its key"),
        (USER + "users: [{name: u, user: {exec: {command: a, apiVersion: v0}}}]", "speaks v0"),
    ],
)
def test_a_bad_kubeconfig_is_refused_with_the_field(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_kubeconfig(tmp_path / "config")


def test_a_missing_kubeconfig_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--kubeconfig"):
        read_kubeconfig(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="not a pod with a service account"):
        in_cluster(tmp_path)


def test_the_event_loop_is_free_while_a_token_is_read(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    source = TokenFile(str(tmp_path / "token"))
    assert asyncio.run(source.get()).token == "t"
    (tmp_path / "token").write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        asyncio.run(TokenFile(str(tmp_path / "token")).get())
