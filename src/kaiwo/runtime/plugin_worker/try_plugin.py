"""Try a plugin on a made-up cluster, confined as it would be: what is wrong with it, and what a call costs.

`kaiwo plugins check` and `kaiwo plugins bench` use this; neither needs a running Kaiwo.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

import kaiwo
from kaiwo.model.errors import PluginError
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload
from kaiwo.plugins.contract import DomainTable, ReplicaNeed, VictimTable
from kaiwo.plugins.edge_contract import (
    Metric,
    MonitoringSample,
    Notice,
    PodPlace,
    QueueSample,
    ResourceAmounts,
    StartPlacement,
    Verdict,
)
from kaiwo.plugins.guarded_calls import PluginFaultError, call_for_rows, call_for_value, call_plugin, call_score
from kaiwo.plugins.registry import check_plugin
from kaiwo.plugins.replica_division import divide_gpus
from kaiwo.plugins.testing import all_nodes, all_queues, view_of
from kaiwo.runtime.plugin_worker.confined_plugin import ConfinedPlugin
from kaiwo.runtime.plugin_worker.internal_imports import internal_imports
from kaiwo.runtime.plugin_worker.messages import Load
from kaiwo.runtime.plugin_worker.plugin_entry import check_kinds, check_version, version_of
from kaiwo.runtime.plugin_worker.plugin_files import FoundPlugin, read_files
from kaiwo.runtime.plugin_worker.plugin_manifest import fits_version
from kaiwo.runtime.plugin_worker.worker_process import WorkerProcess
from kaiwo.snapshot.view import View

DEVICES, MI300X_MIB = 8, 196_608
TRY_DEADLINE_MS = 2_000
WITHOUT_NODES = {"workload_order", "reserve", "permit", "bind", "post_bind", "metrics", "sink", "notification"}
Question = Callable[[Any, View, int], object]


class PointCost(msgspec.Struct, frozen=True):
    point: str
    median_us: int
    p90_us: int


class TriedPlugin(msgspec.Struct, frozen=True):
    name: str
    version: str
    kinds: tuple[str, ...]
    source: str
    sha256: str
    grade: str
    nodes: int  # of the cluster; 0: none of its points gets any
    costs: tuple[PointCost, ...]


def try_plugin(found: FoundPlugin, config: dict[str, Any], nodes: int = 100, calls: int = 1) -> TriedPlugin:
    """Raises PluginError with what is wrong."""
    files = read_files(found)
    manifest = files.manifest
    if internal := internal_imports(files.files):
        raise PluginError(
            f"'{manifest.name}' imports {', '.join(internal)}, which may change with every version of Kaiwo; "
            "import from kaiwo.plugins, or from kaiwo.plugins.testing in tests"
        )
    if not fits_version(manifest, kaiwo.__version__):
        raise PluginError(f"'{manifest.name}' needs Kaiwo {manifest.kaiwo}, and this is {kaiwo.__version__}")
    with tempfile.TemporaryDirectory(prefix="kaiwo-plugin-") as folder:
        staged = Path(folder) / "staged"
        files.write(staged)
        try:
            worker = WorkerProcess(Load(manifest.name, str(staged), manifest.object, config), TRY_DEADLINE_MS)
        except PluginFaultError as fault:
            raise PluginError(f"'{manifest.name}' cannot be loaded: it {fault.detail}") from fault
        try:
            plugin = ConfinedPlugin(manifest.name, version_of(manifest, files.sha256, config), worker)
            served = check_plugin(plugin)
            check_kinds(manifest, served)
            check_version(manifest, worker.loaded.version)
            costs = tuple(_cost(plugin, point, nodes, calls) for point in sorted(served))
        except PluginFaultError as fault:
            raise PluginError(f"'{manifest.name}' {fault.detail}") from fault
        finally:
            worker.close()
    grade = worker.grade.words
    if WITHOUT_NODES.issuperset(served):
        nodes = 0
    return TriedPlugin(
        manifest.name, plugin.version, manifest.kinds, found.source, files.sha256, grade, nodes, costs
    )  # fmt: skip


def _cost(plugin: ConfinedPlugin, point: str, nodes: int, calls: int) -> PointCost:
    view, ask = sample_view(nodes), QUESTIONS[point]
    ask(plugin, view, 0)  # the first question also tells the worker about the nodes
    took = []
    for number in range(1, calls + 1):
        began = time.perf_counter_ns()
        ask(plugin, view, number)
        took.append((time.perf_counter_ns() - began) // 1000)
    ordered = sorted(took)
    return PointCost(point, int(statistics.median(took)), ordered[len(ordered) * 9 // 10])


def sample_view(nodes: int) -> View:
    gpus = tuple(Gpu(f"gpu-{number}", "MI300X", MI300X_MIB) for number in range(DEVICES))
    made = [Node(f"node-{at:05d}", cpu_milli=192_000, memory_mib=2**21, gpus=gpus) for at in range(nodes)]
    pods: list[Pod] = []
    if nodes > 3:  # nodes such as they occur: without GPUs, cordoned, and with more pods than it has room for
        made[-1], made[-2] = replace(made[-1], gpus=()), replace(made[-2], cordoned=True)
        held = tuple(Share(gpu.id, 1_000, gpu.memory_mib) for gpu in gpus)
        pods = [Pod("default/large", f"main-{at}", made[-3].name, devices=held, cpu_milli=180_000) for at in range(2)]
    return view_of(made, [Queue("default"), Queue("lab"), Queue("team")], pods=pods)


def _request(number: int) -> Request:
    """A new shape each time: nothing is remembered from the last call."""
    return Request(1_000 + number, 1_024, gpus=1)


def _ask_filter(plugin: Any, view: View, number: int) -> object:
    rows = all_nodes(view)
    return call_plugin(plugin.name, plugin.filter, len(rows), view, _request(number), rows)


def _ask_score(plugin: Any, view: View, number: int) -> object:
    rows = all_nodes(view)
    return call_score(plugin.name, plugin.score, len(rows), view, _request(number), rows)


def _ask_gpu_score(plugin: Any, view: View, number: int) -> object:
    columns = np.arange(DEVICES)
    return call_score(plugin.name, plugin.gpu_score, DEVICES, view, _request(number), 0, columns)


def _ask_allocation(plugin: Any, view: View, number: int) -> object:
    columns = np.arange(DEVICES)
    return call_plugin(plugin.name, plugin.allocation, DEVICES, view, _request(number), 0, columns)


def _ask_queue_order(plugin: Any, view: View, number: int) -> object:
    rows = all_queues(view)
    need, since_s = np.ones((len(rows), 3), np.int64), np.arange(len(rows)) + number
    return call_for_rows(plugin.name, plugin.queue_order, len(rows), view, rows, need, since_s)


def _ask_workload_order(plugin: Any, view: View, number: int) -> object:
    workload = Workload("default/sample", (Role(_request(number)),), submitted_s=number)
    key = plugin.workload_order(workload, DEFAULT_POLICY)
    if not isinstance(key, tuple) or not all(isinstance(part, int) for part in key):
        raise PluginFaultError(plugin.name, f"returned {key!r:.80}; expected a tuple of integers")
    return key


def _ask_victim_filter(plugin: Any, view: View, number: int) -> object:
    zeros = np.zeros(2, np.int64)
    is_surplus = np.array([True, False])
    victims = VictimTable(("a/b", "a/b"), ("lab", "lab"), zeros, zeros + 1000, zeros, zeros, zeros, is_surplus)
    return call_plugin(plugin.name, plugin.victim_filter, 2, view, victims, DEFAULT_POLICY)


def _domain_table() -> DomainTable:
    """The second has more pods than it has room for."""
    nodes, total, used = np.array([[1, 1], [8_000, 8_000], [0, 9_000]])
    return DomainTable("default/sample", "default", "", "rack", ("rack-1", "rack-2"), nodes, total, used)


def _ask_domain_rule(plugin: Any, view: View, number: int) -> object:
    return call_plugin(plugin.name, plugin.domain_rule, 2, view, _domain_table(), DEFAULT_POLICY)


def _ask_placement_strategy(plugin: Any, view: View, number: int) -> object:
    terms, weights = np.full((2, 4), 500, np.int64), np.array((40, 30, 20, 10))
    return call_score(plugin.name, plugin.placement_strategy, 2, view, _domain_table(), terms, weights)


def _ask_replica_strategy(plugin: Any, view: View, number: int) -> object:
    return divide_gpus(plugin, view, ReplicaNeed(9 + number % 8, 8))


def _sample(view: View, number: int) -> MonitoringSample:
    queues = tuple(QueueSample(name, 1_000, 8_000) for name in view.queues.names)
    return MonitoringSample(number, number, len(view.nodes.names), 1, 8_000, 1_000, 1, 1, queues)


_PLACEMENTS = (StartPlacement("default/sample", "default", "ada", (PodPlace("main-0", "node-00000", ("gpu-0",)),)),)


def _ask_verdicts(point: str) -> Question:
    def ask(plugin: Any, view: View, number: int) -> object:
        verdicts = call_for_value(plugin.name, getattr(plugin, point), list[Verdict], _PLACEMENTS, number)
        if len(verdicts) != 1:
            raise PluginFaultError(plugin.name, f"returned {len(verdicts)} verdicts for one placement")
        return verdicts

    return ask


def _ask_value(point: str, wanted: Any, arguments: Callable[[View, int], tuple[Any, ...]]) -> Question:
    def ask(plugin: Any, view: View, number: int) -> object:
        return call_for_value(plugin.name, getattr(plugin, point), wanted, *arguments(view, number))

    return ask


QUESTIONS: dict[str, Question] = {
    "filter": _ask_filter,
    "score": _ask_score,
    "gpu_score": _ask_gpu_score,
    "allocation": _ask_allocation,
    "queue_order": _ask_queue_order,
    "workload_order": _ask_workload_order,
    "victim_filter": _ask_victim_filter,
    "domain_rule": _ask_domain_rule,
    "placement_strategy": _ask_placement_strategy,
    "replica_strategy": _ask_replica_strategy,
    "reserve": _ask_verdicts("reserve"),
    "permit": _ask_verdicts("permit"),
    "bind": _ask_value("bind", list[dict[str, str]], lambda view, number: (_PLACEMENTS,)),
    "post_bind": _ask_value("post_bind", type(None), lambda view, number: (_PLACEMENTS, number)),
    "resource": _ask_value("resource", ResourceAmounts, lambda view, number: (tuple(view.nodes.nodes),)),
    "topology_source": _ask_value(
        "topology_source", Topology | None, lambda view, number: (tuple(view.nodes.nodes), "")
    ),
    "metrics": _ask_value("metrics", list[Metric], lambda view, number: (_sample(view, number),)),
    "sink": _ask_value("sink", str, lambda view, number: (_sample(view, number),)),
    "notification": _ask_value(
        "notification", str, lambda view, number: (Notice("workload-failed", "default/sample", number),)
    ),
}
