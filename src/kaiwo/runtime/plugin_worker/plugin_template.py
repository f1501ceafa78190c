"""Write a new plugin project that works: its manifest, code for one kind, a test, and how to package it."""

import re
from pathlib import Path
from typing import NamedTuple

import kaiwo
from kaiwo.model.errors import ConfigError
from kaiwo.runtime.plugin_worker.plugin_manifest import MANIFEST, NAME


class KindTemplate(NamedTuple):
    uses: tuple[str, ...]  # names of kaiwo.plugins, in the code
    declares: str  # attributes of the class
    method: str
    test: str  # with `plugin` and `view`: two nodes "a" and "b", with 8 and 4 free CPUs


_TWO = "Request(1_000), all_nodes(view)"
_DOMAINS = (
    "amounts = np.array([[1, 1], [8_000, 4_000], [0, 0]])\n"
    '    domains = DomainTable("a/b", "default", "", "rack", ("r1", "r2"), *amounts)'
)
_STARTS = 'starts = (StartPlacement("a/b", "default", "ada", (PodPlace("main-0", "a"),)),)\n    '
KINDS: dict[str, KindTemplate] = {
    "score": KindTemplate(
        ("CPU", "TOP_SCORE", "IntArray", "Request", "Rows", "View"),
        "    weight = 50\n",
        '''    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        """Prefer nodes with much free CPU."""
        free = view.of(nodes).free[:, CPU]
        return np.clip(TOP_SCORE * free // self.config.full_at, 0, TOP_SCORE)
''',
        f"assert plugin.score(view, {_TWO}).tolist() == [1000, 500]",
    ),
    "filter": KindTemplate(
        ("CPU", "BoolArray", "Reason", "Request", "Rows", "View"),
        "    reason, is_static = Reason.PLUGIN, False\n",
        '''    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        """Exclude nodes with little free CPU."""
        return view.of(nodes).free[:, CPU] >= self.config.full_at
''',
        f"assert plugin.filter(view, {_TWO}).tolist() == [True, False]",
    ),
    "gpu_score": KindTemplate(
        ("MILLI", "TOP_SCORE", "IntArray", "Request", "View"),
        "    weight = 50\n",
        '''    def gpu_score(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        """Prefer devices with much free compute."""
        return np.minimum(TOP_SCORE, TOP_SCORE * view.gpus[node, MILLI, columns] // self.config.full_at)
''',
        "assert plugin.gpu_score(view, Request(gpus=1), 0, np.array([0, 1])).tolist() == [125, 125]",
    ),
    "allocation": KindTemplate(
        ("MILLI", "IntArray", "Request", "View"),
        "",
        '''    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        """Take the device with the least free compute first."""
        return np.minimum(view.gpus[node, MILLI, columns], self.config.full_at)
''',
        "assert plugin.allocation(view, Request(gpus=1), 0, np.array([0, 1])).tolist() == [1000, 1000]",
    ),
    "queue_order": KindTemplate(
        ("IntArray", "Rows", "View"),
        "",
        '''    def queue_order(self, view: View, queues: Rows, next_need: IntArray, next_since_s: IntArray) -> IntArray:
        """Serve the queue first whose next workload waits longest, up to some hours."""
        return -np.minimum(view.now_s - next_since_s, self.config.full_at)
''',
        "rows, need, since_s = np.array([0, 1]), np.ones((2, 3)), np.array([-7, -9_000])\n"
        "    assert plugin.queue_order(view, rows, need, since_s).tolist() == [-7, -8_000]",
    ),
    "workload_order": KindTemplate(
        ("Policy", "Workload"),
        "",
        '''    def workload_order(self, workload: Workload, policy: Policy) -> tuple[int, ...]:
        """Small workloads first."""
        return (min(workload.pods, self.config.full_at),)
''',
        'assert plugin.workload_order(Workload("a/b", (Role(Request(gpus=1), count=3),)), Policy()) == (3,)',
    ),
    "victim_filter": KindTemplate(
        ("BoolArray", "Policy", "VictimTable", "View"),
        "",
        '''    def victim_filter(self, view: View, victims: VictimTable, policy: Policy) -> BoolArray:
        """Spare work that would lose much."""
        return victims.lost_gpu_s < self.config.full_at
''',
        "amounts = np.array([[0, 0]] * 4 + [[9, 9_000]])  # the last: GPU-seconds that would be lost\n"
        '    victims = VictimTable(("a/b", "a/c"), ("lab", "lab"), *amounts, np.array([False, False]))\n'
        "    assert plugin.victim_filter(view, victims, Policy()).tolist() == [True, False]",
    ),
    "domain_rule": KindTemplate(
        ("BoolArray", "DomainTable", "Policy", "View"),
        "",
        '''    def domain_rule(self, view: View, domains: DomainTable, policy: Policy) -> BoolArray:
        """Keep out of domains that have few GPUs."""
        return domains.gpu_milli >= self.config.full_at
''',
        f"{_DOMAINS}\n    assert plugin.domain_rule(view, domains, Policy()).tolist() == [True, False]",
    ),
    "placement_strategy": KindTemplate(
        ("TOP_SCORE", "DomainTable", "IntArray", "View"),
        '    divides_like = "consolidated"\n',
        '''    def placement_strategy(
        self, view: View, domains: DomainTable, terms: IntArray, weights: IntArray
    ) -> IntArray:
        """Prefer domains with many GPUs."""
        return np.minimum(TOP_SCORE, TOP_SCORE * domains.gpu_milli // self.config.full_at)
''',
        f"{_DOMAINS}\n    assert plugin.placement_strategy(view, domains, None, None).tolist() == [1000, 500]",
    ),
    "replica_strategy": KindTemplate(
        ("IntArray", "ReplicaNeed", "View"),
        "",
        '''    def replica_strategy(self, view: View, need: ReplicaNeed) -> IntArray:
        """One GPU for each pod, up to a number of pods; else as few pods as possible."""
        if need.gpus <= self.config.full_at // 1_000:
            return np.ones(need.gpus, np.int64)
        whole, rest = divmod(need.gpus, need.largest)
        return np.array([need.largest] * whole + [rest] * (rest > 0))
''',
        "assert plugin.replica_strategy(view, ReplicaNeed(9, 4)).tolist() == [4, 4, 1]",
    ),
    "reserve": KindTemplate(
        ("ALLOWED", "StartPlacement", "Verdict"),
        "",
        '''    def reserve(self, placements: tuple[StartPlacement, ...], now_s: int) -> list[Verdict]:
        """Take what is needed outside of Kaiwo, or say why not."""
        most = self.config.full_at
        return [Verdict("too many pods at once") if len(each.pods) > most else ALLOWED for each in placements]

    def unreserve(self, placements: tuple[StartPlacement, ...]) -> None:
        """Give it back: these do not start after all."""
''',
        f"{_STARTS}assert plugin.reserve(starts, 0) == [Verdict()]",
    ),
    "permit": KindTemplate(
        ("ALLOWED", "StartPlacement", "Verdict"),
        "",
        '''    def permit(self, placements: tuple[StartPlacement, ...], now_s: int) -> list[Verdict]:
        """Nothing starts before a time."""
        left_s = self.config.full_at - now_s
        return [Verdict("it is too early", left_s) if left_s > 0 else ALLOWED for _ in placements]
''',
        f'{_STARTS}assert plugin.permit(starts, 7_990) == [Verdict("it is too early", 10)]',
    ),
    "bind": KindTemplate(
        ("StartPlacement",),
        "",
        '''    def bind(self, placements: tuple[StartPlacement, ...]) -> list[dict[str, str]]:
        """Tell pods how many of them there are."""
        return [{"example.com/pods": str(min(len(each.pods), self.config.full_at))} for each in placements]
''',
        f'{_STARTS}assert plugin.bind(starts) == [{{"example.com/pods": "1"}}]',
    ),
    "post_bind": KindTemplate(
        ("StartPlacement",),
        "    started = 0\n",
        '''    def post_bind(self, placements: tuple[StartPlacement, ...], now_s: int) -> None:
        """Count what was started."""
        self.started = min(self.started + len(placements), self.config.full_at)
''',
        f"{_STARTS}plugin.post_bind(starts, 0)\n    assert plugin.started == 1",
    ),
    "resource": KindTemplate(
        ("Node", "ResourceAmounts"),
        "",
        '''    def resource(self, nodes: tuple[Node, ...]) -> ResourceAmounts:
        """Each large node has one network card; there are two licences in all."""
        cards = {node.name: 1 for node in nodes if node.cpu_milli >= self.config.full_at}
        return ResourceAmounts(on_nodes={"example.com/card": cards}, floating={"example.com/licence": 2})
''',
        'assert plugin.resource(tuple(view.nodes.nodes)).on_nodes == {"example.com/card": {"a": 1}}',
    ),
    "topology_source": KindTemplate(
        ("Domain", "Node", "Topology", "TopologyLevel"),
        "",
        '''    def topology_source(self, nodes: tuple[Node, ...], text: str) -> Topology | None:
        """One rack for the large nodes, and one for the others."""
        large = tuple(node.name for node in nodes if node.cpu_milli >= self.config.full_at)
        small = tuple(node.name for node in nodes if node.name not in large)
        domains = (Domain("large", "rack", nodes=large), Domain("small", "rack", nodes=small))
        return Topology("racks", (TopologyLevel("rack"),), domains)
''',
        'assert plugin.topology_source(tuple(view.nodes.nodes), "").domains[0].nodes == ("a",)',
    ),
    "metrics": KindTemplate(
        ("Metric", "MonitoringSample"),
        "",
        '''    def metrics(self, sample: MonitoringSample) -> list[Metric]:
        """How much is free, up to a bound."""
        return [Metric("free_milli", min(sample.gpu_milli - sample.gpu_used_milli, self.config.full_at))]
''',
        'assert plugin.metrics(MonitoringSample(7, 1, 2, 2, 16_000, 500, 0, 1)) == [Metric("free_milli", 8_000)]',
    ),
    "notification": KindTemplate(
        ("Notice",),
        "",
        '''    def notification(self, notice: Notice) -> str:
        """One line for each failure."""
        return f"{notice.subject} failed"[: self.config.full_at] if notice.code == "workload-failed" else ""
''',
        'assert plugin.notification(Notice("workload-failed", "lab/train", 7)) == "lab/train failed"',
    ),
    "sink": KindTemplate(
        ("MonitoringSample",),
        "",
        '''    def sink(self, sample: MonitoringSample) -> str:
        """One line a sample, while the cluster is not full."""
        return "" if sample.gpu_used_milli > self.config.full_at else f"{sample.at_s} {sample.gpu_used_milli}"
''',
        'assert plugin.sink(MonitoringSample(7, 1, 2, 2, 16_000, 500, 0, 1)) == "7 500"',
    ),
}


_IN_TESTS = (
    "DomainTable", "Metric", "MonitoringSample", "Notice", "PodPlace", "Policy", "ReplicaNeed", "Request",
    "StartPlacement", "Verdict", "VictimTable", "Workload",
)  # fmt: skip


def write_project(name: str, kind: str, folder: Path) -> list[Path]:
    """The files that were written. Refuses to write over anything."""
    if not re.fullmatch(NAME, name):
        raise ConfigError(f"a plugin cannot be called {name!r:.80}; use lower-case letters, digits and '-'", "name")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; choose another folder with --folder", "folder")
    module, title = name.replace("-", "_"), "".join(part.capitalize() for part in name.split("-"))
    if not module.isidentifier():
        raise ConfigError(f"'{name}' gives no valid Python name; begin it with a letter", "name")
    template = KINDS[kind]
    files = {
        "pyproject.toml": _PROJECT.format(name=name, module=module, title=title, version=kaiwo.__version__),
        "README.md": _README.format(name=name, module=module),
        f"src/{module}/{MANIFEST}": _MANIFEST.format(
            name=name, kind=kind, module=module, title=title, version=kaiwo.__version__
        ),
        f"src/{module}/__init__.py": _code(title, name, template),
        f"tests/test_{module}.py": _test(module, title, template),
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return [folder / path for path in files]


def _code(title: str, name: str, template: KindTemplate) -> str:
    numpy = "import numpy as np\n" if "np." in template.method else ""
    imports = f"import msgspec\n{numpy}\nfrom kaiwo.plugins import {', '.join(template.uses)}\n"
    config = (
        "class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):\n"
        '    """What an administrator can set; checked before the plugin is used."""\n\n'
        "    full_at: int = 8_000\n"
    )
    body = (
        f'class {title}:\n    """Say in one line what this plugin is for."""\n\n'
        f'    name, version = "{name}", "0.1.0"\n{template.declares}    Config = Config\n\n'
        "    def __init__(self, config: Config = Config()) -> None:  # noqa: B008\n        self.config = config\n\n"
        f"{template.method}"
    )
    return f'"""A plugin for Kaiwo."""\n\n{imports}\n\n{config}\n\n{body}'


def _test(module: str, title: str, template: KindTemplate) -> str:
    numpy = "import numpy as np\n" if "np." in template.test else ""
    optional = [each for each in _IN_TESTS if re.search(rf"\b{each}\(", template.test)]
    names = sorted(["Gpu", "Node", *optional])
    helpers = ", ".join(
        name for name in ("Role", "all_nodes", "view_of") if name == "view_of" or f"{name}(" in template.test
    )
    return (
        f"{numpy}from kaiwo.plugins import {', '.join(names)}\n"
        f"from kaiwo.plugins.testing import {helpers}\n\nfrom {module} import {title}\n\n"
        'GPUS = (Gpu("gpu-0", "MI300X", 196_608), Gpu("gpu-1", "MI300X", 196_608))\n\n\n'
        "def test_it_answers_for_a_small_cluster() -> None:\n"
        '    view = view_of([Node("a", cpu_milli=8_000, gpus=GPUS), Node("b", cpu_milli=4_000)])\n'
        f"    plugin = {title}()\n    assert len(view.nodes.names) == 2\n    {template.test}\n"
    )


_PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "A plugin for Kaiwo."
requires-python = ">=3.11"
dependencies = ["kaiwo>={version}"]

[project.entry-points."kaiwo.plugins"]
{name} = "{module}:{title}"

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]

[tool.pytest.ini_options]
pythonpath = ["src"]
"""
_MANIFEST = """name = "{name}"
version = "0.1.0"
kinds = ["{kind}"]
object = "{module}:{title}"
kaiwo = ">={version}"
dependencies = []
description = "Say in one line what this plugin is for."
"""
_README = """# {name}

A plugin for Kaiwo.

    pytest                       # its own tests
    kaiwo plugins check .        # as Kaiwo would run it; prints the sha256 that an administrator allows
    kaiwo plugins bench .        # what a call costs

Its code is in `src/{module}/`.
"""
