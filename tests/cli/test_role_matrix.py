"""Who may use which verb: every verb at the terminal, every role, and every token that is worth nothing.

The table is written out by hand and compared with the verbs of the program, so that a verb without a row fails. A verb
counts as refused when the server's refusal, of the role or of the token, is what the person reads.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from kaiwo.cli.verb_table import kaiwo as program
from tests.cli.conftest import Type
from tests.cli.test_end_to_end import Product

pytestmark = pytest.mark.slow

# a: admin, o: operator, u: user, v: viewer, s: scraper
READERS, WORKERS, OPERATORS, ADMINS = "aouv", "aou", "ao", "a"
RESERVE = "reservations create NAME --gpus 1 --for-user nobody --start 2099-01-31T18:00:00Z --end 2099-01-31T19:00:00Z"
# The words that are typed, and who may. WORK is somebody else's work, OWN the person's own, NAME a new name.
VERBS = {
    "status": ("status", READERS),
    "why": ("why WORK", READERS),
    "queue": ("queue", READERS),
    "share": ("share", READERS),
    "gpus": ("gpus", READERS),
    "get": ("get workloads", READERS),
    "describe": ("describe workload WORK", READERS),
    "wait": ("wait WORK --timeout 1s", READERS),
    "nodes": ("nodes", READERS),
    "reservations": ("reservations", READERS),
    "reservations describe": ("reservations describe night", READERS),
    "partitions": ("partitions", READERS),
    "agents": ("agents", READERS),
    "plugins": ("plugins", READERS),
    "plugins list": ("plugins list", READERS),
    "plugins info": ("plugins info pack", READERS),
    "topology": ("topology", READERS),
    "what-if": ("what-if --add-nodes 1", READERS),
    "recovery": ("recovery", READERS),
    "scale": ("scale", READERS),
    "history": ("history WORK", READERS),
    "seff": ("seff WORK", READERS),
    "report": ("report", READERS),
    "idle": ("idle", READERS),
    "advice": ("advice", READERS),
    "capacity": ("capacity", READERS),
    "trends": ("trends", READERS),
    "adjustments": ("adjustments", READERS),
    "usage": ("usage process", READERS),
    "alerts": ("alerts", READERS),
    "alerts history": ("alerts history", READERS),
    "alerts rules": ("alerts rules", READERS),
    "alerts silences": ("alerts silences", READERS),
    "alerts silence": ("alerts silence gpu-hot", OPERATORS),
    "alerts unsilence": ("alerts unsilence 1", OPERATORS),
    "alerts channels": ("alerts channels", OPERATORS),
    "alerts test": ("alerts test none", ADMINS),
    "policy get": ("policy get", READERS),
    "defrag status": ("defrag status", READERS),
    "defrag plan": ("defrag plan", OPERATORS),
    "defrag run": ("defrag run gone --yes", OPERATORS),
    "defrag abort": ("defrag abort", OPERATORS),
    "version": ("version", READERS),
    "doctor": ("doctor", READERS),
    "login": ("login", READERS),
    "logout": ("logout", READERS),
    "logs": ("logs WORK", OPERATORS),
    "submit": ("submit NAME --hold -- true", WORKERS),
    "run": ("run --name NAME -- true", WORKERS),
    "apply": ("apply -f MANIFEST", WORKERS),
    "delete": ("delete -f MANIFEST", WORKERS),
    "hold": ("hold OWN", WORKERS),
    "release": ("release OWN", WORKERS),
    "requeue": ("requeue OWN", WORKERS),
    "set": ("set OWN priority=-1", WORKERS),
    "progress": ("progress OWN --step 2s", WORKERS),
    "checkpoint": ("checkpoint OWN", WORKERS),
    "cancel": ("cancel OWN", WORKERS),
    "nodes cordon": ("nodes cordon node-2", OPERATORS),
    "nodes uncordon": ("nodes uncordon node-2", OPERATORS),
    "nodes drain": ("nodes drain node-2", OPERATORS),
    "nodes fail": ("nodes fail node-2", OPERATORS),
    "nodes restore": ("nodes restore node-2", OPERATORS),
    "audit": ("audit", OPERATORS),
    "reservations create": (RESERVE, OPERATORS),
    "reservations delete": ("reservations delete none", OPERATORS),
    "demo clear": ("demo clear", ADMINS),
    "policy diff": ("policy diff placement=spread", ADMINS),
    "policy set": ("policy set placement=pack", ADMINS),
    "policy undo": ("policy undo", ADMINS),
    "plugins enable": ("plugins enable none", ADMINS),
    "plugins disable": ("plugins disable none", ADMINS),
    "plugins reload": ("plugins reload none", ADMINS),
    "tokens": ("tokens", ADMINS),
    "tokens list": ("tokens list", ADMINS),
    "tokens create": ("tokens create NAME --role viewer", ADMINS),
    "tokens rotate": ("tokens rotate t-none", ADMINS),
    "tokens revoke": ("tokens revoke t-none", ADMINS),
}
# Further words of a verb that needs more than one right.
MORE = {
    "partitions --policy dry-run": ADMINS,
    "apply -f QUEUE": ADMINS,
    "submit NAME --hold --user somebody -- true": OPERATORS,
    "hold WORK": OPERATORS,
    "cancel WORK": OPERATORS,
}
NEED_NO_SERVER = {
    "up", "scheduler", "install", "discover", "backup", "restore", "replay", "agent", "completion", "demo", "policy",
    "defrag",
    "alerts check",
    "audit head", "audit verify", "plugins check", "plugins bench", "plugins new", "simulate", "simulate openb",
    "top",  # it needs a terminal; what it shows are other verbs
    "simulate defrag", "simulate run", "simulate muri", "simulate philly", "simulate journal",
}  # fmt: skip
ROLES = {"a": "admin", "o": "operator", "u": "user", "v": "viewer", "s": "scraper"}
REFUSALS = ("has the role", "only reads /metrics", "belongs to", "in their own name")
BAD_TOKENS = ("this needs a token", "is wrong", "was revoked at", "expired at", "was replaced at")
REPORTS = ("version", "doctor")  # what they find out is their answer
QUEUE = "kind: KaiwoQueue\nmetadata: {name: fresh}\nspec: {}\n"


class Site(NamedTuple):
    """A running Kaiwo with a node, a reservation and a workload of the owner, and one token for each role."""

    product: Product
    folder: Path
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    product = Product(tmp_path_factory.mktemp("home"))
    tokens = {
        letter: product(
            "tokens", "create", role, "--role", role, *(["--queue", "*"] if letter == "u" else [])
        ).out.strip()
        for letter, role in ROLES.items()
    }
    product(*RESERVE.replace("NAME", "night").split())
    yield Site(product, tmp_path_factory.mktemp("person"), tokens)
    if product.up.poll() is None:
        product.stop()


@pytest.fixture
def typed(site: Site, kaiwo: Type, monkeypatch: pytest.MonkeyPatch) -> "Terminal":
    return Terminal(site, kaiwo, monkeypatch)


class Terminal:
    """Types words as the person with this token."""

    def __init__(self, site: Site, kaiwo: Type, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site, self._kaiwo, self._monkeypatch = site, kaiwo, monkeypatch
        self._count = 0

    def is_refused(self, words: str, token: str, phrases: tuple[str, ...] = REFUSALS) -> bool:
        self._count += 1
        name = f"n{time.monotonic_ns()}-{self._count}"
        product = self.site.product
        if "WORK" in words:
            product("submit", f"w{name}", "--hold", "--", "true")
        self._monkeypatch.setenv("KAIWO_SERVER", product.url)
        self._monkeypatch.setenv("KAIWO_TOKEN", token)
        if "OWN" in words:
            self._kaiwo("submit", f"o{name}", "--hold", "--", "true")  # refused for those who may not even that
        (self.site.folder / "queue.yaml").write_text(QUEUE)
        (self.site.folder / "work.yaml").write_text(f"name: {name}\nhold: true\n")
        known = {"WORK": f"w{name}", "OWN": f"o{name}", "NAME": name, "QUEUE": "queue.yaml", "MANIFEST": "work.yaml"}
        typed = [str(self.site.folder / known[w]) if known.get(w, "").endswith("yaml") else known.get(w, w)
                 for w in words.split()]  # fmt: skip
        answer = self._kaiwo(*typed)
        said = answer.err + (answer.out if words in REPORTS else "")
        return any(phrase in said for phrase in phrases)


def verbs(group: click.Group, path: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield path + name
        if isinstance(command, click.Group):
            yield from verbs(command, f"{path}{name} ")


def test_every_verb_has_a_row() -> None:
    assert set(verbs(program)) - VERBS.keys() - NEED_NO_SERVER == set(), "say in VERBS who may use this verb"
    assert (VERBS.keys() | NEED_NO_SERVER) - set(verbs(program)) == set(), "there is no such verb any more"


ROWS = [*VERBS.values(), *MORE.items()]


@pytest.mark.parametrize(("words", "letters"), ROWS, ids=[words for words, _ in ROWS])
def test_each_role_may_use_the_verbs_that_the_table_says(typed: "Terminal", words: str, letters: str) -> None:
    may = "".join(letter for letter in ROLES if not typed.is_refused(words, typed.site.tokens[letter]))
    assert may == letters


@pytest.mark.parametrize("kind", ["none", "wrong", "revoked", "rotated out"])
def test_a_token_that_is_worth_nothing_is_refused_by_every_verb(typed: "Terminal", kind: str) -> None:
    product, token = typed.site.product, ""
    if kind == "wrong":
        token = "kaiwo_wrong"
    elif kind != "none":
        token = product("tokens", "create", "boss", "--role", "admin").out.strip()
        (name,) = [
            each["id"]
            for each in product.api("/tokens")["items"]
            if each["name"] == "boss" and each["state"] == "valid"
        ]
        product("tokens", *(["revoke", name] if kind == "revoked" else ["rotate", name, "--grace", "0s"]))
    for words, _ in list(VERBS.values())[:: 3 if kind == "wrong" else 1]:  # 30 guesses are free; then each waits
        assert typed.is_refused(words, token, BAD_TOKENS), words
