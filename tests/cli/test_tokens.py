"""`kaiwo tokens` and `kaiwo login --token` at a terminal, against a real `kaiwo up`."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Typed
from tests.cli.test_end_to_end import QUEUES, Product

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kaiwo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    product = Product(tmp_path_factory.mktemp("home"))
    product("apply", "-f", "-", given=QUEUES)
    yield product
    if product.up.poll() is None:
        product.stop()


class Guest:
    """Another person, with a home of their own, in front of the same Kaiwo."""

    def __init__(self, kaiwo: Product, home: Path, token: str = "") -> None:
        self._kaiwo = kaiwo
        self.env = {**kaiwo.env, "KAIWO_HOME": str(home), "KAIWO_SERVER": kaiwo.url, "KAIWO_TOKEN": token}

    def __call__(self, *args: str, given: str = "") -> Typed:
        own, self._kaiwo.env = self._kaiwo.env, self.env
        try:
            return self._kaiwo(*args, given=given)
        finally:
            self._kaiwo.env = own


def test_a_token_is_made_used_rotated_and_revoked(kaiwo: Product, tmp_path: Path) -> None:
    assert "nobody has a token yet" in kaiwo("tokens").err
    made = kaiwo("tokens", "create", "ada", "--role", "user", "--queue", "lab", "--expires", "7d")
    assert "for ada (user of lab) expires at" in made.err
    (secret,) = made.lines()
    ada = Guest(kaiwo, tmp_path, secret)
    assert ada("status").code == 0
    assert ada("submit", "adas", "-q", "vision", "--hold", "--", "true").code == 0
    assert kaiwo.api("/workloads/default/adas")["summary"]["user"] == "ada"
    assert ada("get", "workloads", "-u", "me", "-o", "name").lines() == ["default/adas"], (
        "-u me is whoever has the token"
    )
    refused = ada("submit", "elsewhere", "-q", "default", "--", "true")
    assert refused.code == 1
    assert "may not submit into queue default, only into lab" in refused.err
    assert "this needs the role admin: ask" in ada("tokens").err
    (row,) = json.loads(kaiwo("tokens", "-o", "json").out)["items"]
    assert row["last_used_s"] > 0
    assert kaiwo("tokens", "list", "-o", "name").lines() == [row["id"]]
    rotated = kaiwo("tokens", "rotate", row["id"], "--grace", "1h")
    assert "the secret before it is good until" in rotated.err
    assert ada("status").code == 0, "during the grace period"
    ada = Guest(kaiwo, tmp_path, rotated.lines()[0])
    (secret,) = kaiwo("tokens", "rotate", row["id"], "--grace", "0s").lines()
    assert "was replaced at" in ada("status").err
    ada = Guest(kaiwo, tmp_path, secret)
    assert kaiwo("tokens", "revoke", row["id"]).out == f"token {row['id']} of ada revoked\n"
    ended = ada("status")
    assert ended.code == 1
    assert "of ada was revoked at" in ended.err
    assert "revoked" in kaiwo("tokens", "-o", "wide").out
    assert kaiwo("tokens", "revoke", "t-none").code == 1


def test_what_is_wrong_is_said(kaiwo: Product) -> None:
    assert kaiwo("tokens", "create", "ada").code == 2
    wrong = kaiwo("tokens", "create", "ada", "--role", "user")
    assert wrong.code == 2
    assert "needs the queues into which this person may submit" in wrong.err
    assert "did you mean 'lab'" in kaiwo("tokens", "create", "ada", "--role", "user", "--queue", "lap").err
    assert kaiwo("tokens", "create", "ada", "--role", "viewer", "--expires", "soon").code == 2


def test_a_saved_token_is_used_for_its_server_and_is_ones_own(kaiwo: Product, tmp_path: Path) -> None:
    (secret,) = kaiwo("tokens", "create", "grace", "--role", "viewer").lines()
    grace = Guest(kaiwo, tmp_path / "new" / "home")
    assert "token" in grace("status").err
    wrong = grace("login", "--token", given="kaiwo_wrong\n")
    assert wrong.code == 1
    assert not os.path.exists(tmp_path / "new" / "home" / "server-tokens.json")
    done = grace("login", "--token", given=secret + "\n")
    assert done.code == 0, done.err
    assert "you are grace, with the role viewer" in done.err
    assert done.out.strip().startswith(f"{kaiwo.url}/login?code=")
    assert secret not in done.out + done.err
    assert stat.S_IMODE((tmp_path / "new" / "home" / "server-tokens.json").stat().st_mode) == 0o600
    assert grace("status").code == 0
    assert "which may not submit or change work" in grace("submit", "x", "--", "true").err


def test_prometheus_gets_as_many_tokens_as_it_needs(kaiwo: Product, tmp_path: Path) -> None:
    for name in ("prometheus-1", "prometheus-2"):
        (secret,) = kaiwo("tokens", "create", name, "--role", "scraper", "--expires", "never").lines()
        assert "only reads /metrics" in Guest(kaiwo, tmp_path, secret)("status").err
