"""The tables of the pages say what the code says: verbs, routes, codes, states, variables, plugins, folders."""

import ast
import json
import re
import shlex
import tomllib
from itertools import pairwise, takewhile
from pathlib import Path

import click
import pytest

from bench.__main__ import benchmark_names
from kaiwo.api.application import document
from kaiwo.cli.verb_table import ENTRIES
from kaiwo.cli.verb_table import kaiwo as program
from kaiwo.clusters.embedded.lifecycle import PlacedRun, Run
from kaiwo.clusters.local.cluster_file import read_cluster_file
from kaiwo.clusters.local.process_environment import environment
from kaiwo.explain.possible_changes import ChangeKind
from kaiwo.manifests import parse_all
from kaiwo.manifests.values.names import INDEX_LABEL
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.node import DeviceLinks, Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from kaiwo.plugins import contract as plugin_contract
from kaiwo.plugins import edge_contract
from kaiwo.plugins.builtin import SWITCHED, builtin_registry
from kaiwo.plugins.builtin.topology_sources import IbNetDiscover, NodeLabels, PresetLabels, SlurmConf
from kaiwo.plugins.registry import ALL_POINTS, EDGE_POINTS, POINTS
from tests.conftest import ROOT
from tests.docs.markdown import PAGES, Block, blocks, code_words, page_code_words, table

DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "kaiwo"


def verbs(group: click.Group, path: str = "") -> dict[str, click.Command]:
    """Every verb by the words that one types."""
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found[path + name] = command
        if isinstance(command, click.Group):
            found |= verbs(command, f"{path}{name} ")
    return found


VERBS = verbs(program)


def test_the_command_line_page_has_every_verb_with_its_own_line() -> None:
    rows = {code_words(row[0])[0]: row[1] for row in table(DOCS / "cli.md", "verb")}
    assert sorted(rows) == sorted(VERBS)
    for name, line in rows.items():
        own = ENTRIES[name][1] if name in ENTRIES else " ".join((VERBS[name].help or "").split("\n\n")[0].split())
        assert line == own


COMMANDS = sorted(
    {
        (block.place, line.removeprefix("$ "))
        for page in PAGES
        for block in blocks(page, "console", "sh")
        for line in block.text.splitlines()
        if line.removeprefix("$ ").startswith("kaiwo ")
    }
    | {("docs/cli.md", code_words(row[2])[0]) for row in table(DOCS / "cli.md", "verb")}
    | {("examples/README.md", code_words(row[2])[0]) for row in table(ROOT / "examples" / "README.md", "file")}
)


@pytest.mark.parametrize(("place", "line"), COMMANDS)
def test_every_command_on_a_page_can_be_typed(place: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    name, given = split_command(line)
    with click.Context(program, info_name="kaiwo") as parent:
        VERBS[name].make_context(name, given, parent=parent)


MENTIONS = sorted({word for page in PAGES for word in page_code_words(page) if word.startswith("kaiwo ")})


@pytest.mark.parametrize("line", MENTIONS)
def test_every_verb_that_a_page_mentions_is_there(line: str) -> None:
    if line.startswith("kaiwo VERB"):
        return
    name, given = split_command(line)
    options = {option for parameter in VERBS[name].params for option in parameter.opts} | {"--help"}
    command = given[: given.index("--")] if "--" in given else given
    assert {word for word in command if re.fullmatch(r"-[a-z]|--[a-z-]+", word)} <= options


def split_command(line: str) -> tuple[str, list[str]]:
    """The verb, and what follows it up to the end of the command."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    words = list(takewhile(lambda word: word[0] not in ";&|$(" or word.startswith("$K"), list(reader)[1:]))
    name = " ".join(words[:2]) if " ".join(words[:2]) in VERBS else words[0]
    assert name in VERBS, f"there is no verb in: {line}"
    return name, words[len(name.split()) :]


def test_the_api_page_has_every_route() -> None:
    rows = [(row[0], code_words(row[1])[0], row[2]) for row in table(DOCS / "api.md", "method")]
    served = [
        (method.upper(), path, operation["summary"])
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
    ]
    assert sorted(rows) == sorted(served)


def test_the_api_page_has_every_metric() -> None:
    listed = [word for row in table(DOCS / "api.md", "metric") for word in code_words(row[0])]
    code = "".join(path.read_text() for path in sorted((SOURCE / "api").rglob("*metrics.py")))
    assert sorted(listed) == sorted(set(re.findall(r'"((?:kaiwo|topology)_\w+)"', code)))


def test_the_concepts_page_has_every_obstacle() -> None:
    codes = [code_words(row[0])[0] for row in table(DOCS / "concepts.md", "code")]
    assert codes == [reason.value for reason in Reason]


def test_the_concepts_page_has_every_state() -> None:
    rows = [(code_words(row[0])[0], row[2]) for row in table(DOCS / "concepts.md", "state")]
    assert rows == [(state.value, "yes" if state.is_over else "no") for state in WorkloadState]


def test_the_concepts_page_has_every_variable_of_a_process() -> None:
    workload = Workload("default/a", (Role(Request(gpus=1)),), labels={INDEX_LABEL: "3"})
    pod = Pod(workload.name, "main-0", "node-1", devices=(Share("gpu-0", 1000, 1),), rank=0)
    run = PlacedRun(pod, Run("r", workload.name, pod.name))
    wiring = DeviceLinks(((0,),), (0,), (0,), ("mlx5_0",))
    node = Node("node-1", gpus=(Gpu("gpu-0", "MI300X", 1),), wiring=wiring)
    made = environment(WorkloadRecord(workload), run, node, "/run", "/home", [pod])
    found = [name for name in made if name.startswith("KAIWO_")]
    assert [code_words(row[0])[0] for row in table(DOCS / "concepts.md", "variable")] == found


PROTOCOLS = {
    value
    for module in (plugin_contract, edge_contract)
    for value in vars(module).values()
    if isinstance(value, type) and plugin_contract.Plugin in value.__mro__ and value is not plugin_contract.Plugin
}


def test_the_plugins_page_has_every_point_and_every_plugin_of_ours() -> None:
    named = [code_words(row[0])[0] for row in table(DOCS / "plugins.md", "point")]
    assert named == [*POINTS, *EDGE_POINTS]
    assert {_method(point) for point in PROTOCOLS} == set(ALL_POINTS)
    sources = (PresetLabels, NodeLabels, SlurmConf, IbNetDiscover)
    ours = [*map(type, builtin_registry().plugins), *SWITCHED, *sources]
    served = {plugin.name: {point for point in ALL_POINTS if hasattr(plugin, point)} for plugin in ours}
    rows = table(DOCS / "plugins.md", "name")
    listed = {name: set(code_words(row[1])) for row in rows for name in code_words(row[0])}
    assert listed == served
    own = {plugin.name: str(getattr(plugin, "weight", "-")) for plugin in ours}
    assert {name: row[2] for row in rows for name in code_words(row[0])} == own


def _method(point: type) -> str:
    (name,) = (name for name, value in vars(point).items() if callable(value) and not name.startswith("_"))
    return name


def test_the_architecture_page_has_the_closed_list_of_changes() -> None:
    rows = [(code_words(row[1])[0], row[2]) for row in table(DOCS / "architecture.md", "order")]
    assert {kind for kind, _ in rows} == {kind.value for kind in ChangeKind}
    order = list(ChangeKind)
    ranks = [(by == "admin", order.index(ChangeKind(kind))) for kind, by in rows]
    assert all(one < other for one, other in pairwise(ranks))


def test_the_architecture_page_says_who_may_import_whom() -> None:
    rows = {code_words(row[0])[0].rstrip("/"): row[2] for row in table(DOCS / "architecture.md", "folder")}
    assert {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()} <= set(rows)
    above: list[str] = []
    for name, cell in rows.items():
        may = {"nothing of ours": [], "the above": list(above)}.get(cell, code_words(cell))
        assert sorted(may) == sorted(other for other in rows if other != name and may_import(name, other)), name
        above.append(name)


def may_import(importer: str, imported: str) -> bool:
    """By the contracts of pyproject.toml: never upwards, and not sideways where siblings are independent ('|')."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    for layers in (contract["layers"] for contract in contracts if contract["type"] == "layers"):
        place = {
            name: (level, " | " in layer)
            for level, layer in enumerate(layers)
            for name in re.findall(r"\((\w+)\)", layer)
        }
        if importer not in place or imported not in place:
            continue
        (from_level, is_independent), (to_level, _) = place[importer], place[imported]
        if to_level < from_level or (to_level == from_level and is_independent):
            return False
    return _reaches(importer, imported)


def _reaches(importer: str, imported: str) -> bool:
    """Edges lie side by side in the contracts; which of them use each other is said where an edge is held down."""
    sideways = {
        ("telemetry", "history"),
        ("clusters", "manifests"),
        ("controllers", "clusters"),
        ("controllers", "manifests"),
    }
    edges = {"controllers", "clusters", "devices", "history", "telemetry", "manifests"}
    return importer not in edges or imported not in edges or (importer, imported) in sideways


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("0*.md")), ids=lambda page: page.stem)
def test_a_decision_has_its_three_parts_and_is_listed(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem[:4]}: ")
    assert all(f"\n## {part}\n" in text for part in ("Question", "Choice", "What we gave up"))
    assert f"({page.name})" in (page.parent / "README.md").read_text()


def test_every_benchmark_is_described() -> None:
    text = (DOCS / "benchmarks" / "README.md").read_text()
    assert [name for name in benchmark_names() if f"\n## {name}\n" not in text] == []


def test_the_figures_on_the_benchmarks_page_are_those_of_the_last_run() -> None:
    page = DOCS / "benchmarks" / "README.md"
    why = json.loads((page.parent / "why.json").read_text())
    prefixes = ("", "distinct_", "gangs_")
    expected = [[sum(why[f"{each}changes"].values()), why[f"{each}undecided"]] for each in prefixes]
    assert [[int(cell) for cell in row[1:]] for row in table(page, "backlog")] == expected
    seeds = json.loads((page.parent / "backfill.json").read_text())["seeds"]
    runs = [(seed, run["errors"]) for seed, run in seeds.items()]
    assert table(page, "seed") == [
        [seed, *map(str, (run["promised"], sum(run["broken"].values()), run["broken"]["overran"], run["stopped"]))]
        for seed, run in runs
    ]


YAML = [block for page in PAGES for block in blocks(page, "yaml")]


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.place)
def test_every_manifest_on_a_page_is_accepted(block: Block) -> None:
    parsed = parse_all(block.text)
    assert parsed.submissions or parsed.queues or parsed.reservations or parsed.partitioning or parsed.topologies
    assert not parsed.warnings


def test_every_example_is_listed_and_the_cluster_file_is_read() -> None:
    folder = ROOT / "examples"
    text = (folder / "README.md").read_text()
    assert [path.name for path in sorted(folder.glob("*.yaml")) if f"({path.name})" not in text] == []
    nodes = read_cluster_file((folder / "cluster.yaml").read_text())
    assert sum(len(node.gpus) for node in nodes) == 102


def test_every_sentence_of_the_troubleshooting_page_is_in_the_code() -> None:
    texts = "\n".join(
        node.value
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    shown = [word for row in table(DOCS / "troubleshooting.md", "you see") for word in code_words(row[0])]
    parts = [part.strip() for text in shown for part in text.split("...") if not text.startswith("kaiwo")]
    assert [part for part in parts if len(part) > 8 and part not in texts] == []
