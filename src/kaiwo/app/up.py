"""Compose `kaiwo up`: the local cluster, the loop, the API and the web page in one process."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.api.application import context_of, make_app
from kaiwo.api.context import Context
from kaiwo.api.settings import Settings
from kaiwo.app.audit_limits import audit_limits
from kaiwo.app.http_server import Tls, check_exposure, check_tls, serve
from kaiwo.app.interpreter_tuning import tune_interpreter
from kaiwo.app.load_policy import load_policy
from kaiwo.app.options import UpOptions
from kaiwo.clusters.embedded.ended_work import Retention
from kaiwo.clusters.local import LocalCluster, read_cluster_file, virtual_nodes
from kaiwo.clusters.local.cgroups import find_cgroups
from kaiwo.clusters.local.cluster_file import (
    DEFAULT_MODEL,
    DEFAULT_NODES,
    parse_topology_option,
    read_topology_sources,
)
from kaiwo.clusters.local.disk_space import DiskLimits
from kaiwo.devices.discover import discover
from kaiwo.history.journal_writer import Journal
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.quantities import read_duration_s, read_memory_bytes
from kaiwo.model.errors import ConfigError
from kaiwo.model.network.topology_source import SourceKind, TopologySource
from kaiwo.model.node import Node
from kaiwo.runtime.edge_points.edge_points import EdgePoints
from kaiwo.runtime.log import begin_logging, emit, log_loop_error
from kaiwo.runtime.loop.learned_run_times import RunTimeFile, RunTimes
from kaiwo.runtime.loop.live_policy import LivePolicy
from kaiwo.runtime.loop.past_usage_tracker import PastUsageFile, PastUsageTracker
from kaiwo.runtime.loop.performance_tracker import NodeSpeedFile, PerformanceTracker
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop, first_of
from kaiwo.runtime.nodes.local_gpu_shares import LocalGpuShares
from kaiwo.runtime.nodes.local_node import real_node
from kaiwo.runtime.partitioning.local_machine import LocalMachine
from kaiwo.runtime.partitioning.saved_state import FILE, read_state, with_saved_modes
from kaiwo.runtime.plugin_worker.plugin_set import REFUSED, PluginSet
from kaiwo.runtime.topology.kept_topologies import KeptTopologies
from kaiwo.runtime.topology.read_source import with_inner_links
from kaiwo.runtime.topology.topology_reader import FirstRead


def run(options: UpOptions) -> None:
    """Run until Ctrl-C or SIGTERM. Running workloads continue after that."""
    with contextlib.suppress(KeyboardInterrupt):
        begin_logging(options.log_level)
        asyncio.run(_run(options))


class Running(NamedTuple):
    cluster: LocalCluster
    loop: SchedulingLoop
    context: Context
    url: str
    scheduling: "asyncio.Task[None]"  # ends only when it fails


@contextlib.asynccontextmanager
async def running(options: UpOptions) -> AsyncIterator[Running]:
    """Start everything, and stop it at the end of the block."""
    tls = Tls(options.tls_cert, options.tls_key)
    check_tls(tls)
    check_exposure(options.host, tls, options.insecure_http)
    asyncio.get_running_loop().set_exception_handler(log_loop_error)
    plugins = PluginSet(options.home, options.plugins)
    await asyncio.to_thread(plugins.load_on_thread)
    live_policy = LivePolicy(options.home, options.policy)
    policy = live_policy.load(load_policy(options.policy, plugins.registry), plugins.registry)
    find_gpus = lambda: discover(options.root, has_telemetry=False)  # noqa: E731
    sources = _topology_sources(options)
    cluster = LocalCluster(
        options.home,
        _nodes(options, sources),
        speed=options.speed,
        default_nodes=lambda: _default_nodes(options.root),
        shares=LocalGpuShares(Path(options.home) / "sharing", find_gpus, options.root),
        retention=_retention(options),
        disk=_disk_limits(options),
        cgroups=await asyncio.to_thread(find_cgroups, options.home, options.max_processes),
        report=lambda line: print(line, file=sys.stderr, flush=True),
    )
    past_use = PastUsageTracker.of(policy, PastUsageFile(options.home))
    run_times = RunTimes(RunTimeFile(options.home))
    performance = PerformanceTracker(policy, NodeSpeedFile(options.home))
    journal = Journal(Path(options.home) / "journal")
    network = FirstRead()
    loop = SchedulingLoop(
        cluster,
        journal,
        policy,
        plugins.registry,
        may_decide=network.may_decide,
        past_use=past_use,
        run_times=run_times,
        performance=performance,
    )
    edge = EdgePoints(plugins, loop, options.home)
    edge.attach()
    settings = Settings(
        home=options.home, host=options.host, agent_token_file=options.agent_token_file, partitions=options.partitions,
        keep_past_s=_retention(options).keep_s,
        **audit_limits(options),
    )  # fmt: skip
    app = make_app(loop, settings)
    context = context_of(app)
    context.topology.sources, context.topology.kept = sources, KeptTopologies(options.home)
    context.edge, context.policy = edge, live_policy
    context.alerts.use_file(options.alerts)
    context.series.use_exporters(options.exporters)
    context.use_traces(options.traces)
    context.topology.plugins, context.topology.file_of = edge.calls, edge.file_of
    context.record_start(partitions=options.partitions)
    scheduling = asyncio.create_task(loop.run(), name="kaiwo-loop")
    try:
        await first_of(loop.changed(0), scheduling)  # until the state is loaded, so that the first page is not empty
        tune_interpreter()
        await network.read(context.topology, loop.wake)
        async with contextlib.AsyncExitStack() as stack:
            if not cluster.is_virtual:
                from kaiwo.runtime.nodes.in_process_agent import in_process_agent  # virtual nodes have none

                for name in cluster.state.nodes:
                    context.partitions.changer.machine = _machine(context, name, options)
                    await stack.enter_async_context(in_process_agent(context.agents, name, options.root))
            server, url = await serve(
                app, options.host, options.port, options.home, context.closing.set, tls, context.connections
            )
            stack.push_async_callback(server.stop)
            yield Running(cluster, loop, context, url, scheduling)
    finally:
        scheduling.cancel()
        await asyncio.gather(scheduling, return_exceptions=True)
        await cluster.close()
        plugins.close()


async def _run(options: UpOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(options) as kaiwo:
        demo = asyncio.create_task(_demo(kaiwo.cluster), name="kaiwo-demo") if options.demo else None
        try:
            _print_summary(options, kaiwo)
            await first_of(stop.wait(), kaiwo.scheduling)
        finally:
            if demo is not None:
                demo.cancel()
                await asyncio.gather(demo, return_exceptions=True)


def _topology_sources(options: UpOptions) -> tuple[TopologySource, ...]:
    """Those of the cluster file, whose paths are relative to it, and those of the command line."""
    found = []
    if options.cluster_file:
        folder = Path(options.cluster_file).parent
        for source in read_topology_sources(Path(options.cluster_file).read_bytes(), options.cluster_file):
            found.append(replace(source, path=str(folder / source.path)) if source.path else source)
    found += [parse_topology_option(text) for text in options.topology]
    names = [source.name for source in found if source.kind != SourceKind.NCCL]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(
            f"two topologies are named {twice}; give one in the cluster file a name of its own", "topology"
        )
    return tuple(found)


def _nodes(options: UpOptions, sources: Sequence[TopologySource]) -> Sequence[Node] | None:
    """The requested nodes, with their saved partition modes; None: the same nodes as the last time."""
    if options.cluster_file:
        nodes = read_cluster_file(Path(options.cluster_file).read_bytes(), options.cluster_file)
    elif options.nodes or options.gpu_model:
        nodes = virtual_nodes(options.nodes or DEFAULT_NODES, options.gpu_model or DEFAULT_MODEL)
    else:
        return None
    saved = read_state(Path(options.home) / FILE)
    return [with_saved_modes(node, saved) for node in with_inner_links(nodes, sources)]


def _retention(options: UpOptions) -> Retention:
    keep_s = read_duration_s(options.keep_for, FieldPath("", "--keep-for"))
    return Retention(keep_s, read_memory_bytes(options.keep_size, FieldPath("", "--keep-size")))


def _disk_limits(options: UpOptions) -> DiskLimits:
    keep_free = read_memory_bytes(options.keep_free, FieldPath("", "--keep-free")) if options.keep_free else -1
    return DiskLimits(keep_free, read_memory_bytes(options.log_size, FieldPath("", "--log-size")))


def _default_nodes(root: str) -> Sequence[Node]:
    machine = real_node(root)
    return virtual_nodes() if machine is None else (machine,)


def _machine(context: Context, name: str, options: UpOptions) -> LocalMachine:
    """This machine, for changes of its partition modes; a GPU that runs a process is in use."""

    def tenant(gpu: str) -> str:
        agent = context.agents.of(name)
        sample = agent.gpu(gpu) if agent is not None else None
        return f"process {sample.processes[0].pid}" if sample and sample.processes else ""

    return LocalMachine(name, options.root, Path(options.home) / "partitions", tenant)


async def _demo(cluster: LocalCluster) -> None:
    from kaiwo.clusters.local.demo_workloads import keep_submitting, submit_demo

    try:
        await submit_demo(cluster)
        await keep_submitting(cluster)
    except Exception as error:  # Kaiwo also works without the demo
        emit("demo-failed", level="error", error=f"{type(error).__name__}: {error}")


def describe_nodes(nodes: Sequence[Node], is_virtual: bool) -> str:
    """`8 virtual nodes, 64 GPUs`; the partitions of a GPU count as one."""
    gpus = sum(len({gpu.parent or gpu.id for gpu in node.gpus}) for node in nodes)
    kind = "virtual node" if is_virtual else "node"
    return f"{len(nodes)} {kind}{'' if len(nodes) == 1 else 's'}, {gpus} GPU{'' if gpus == 1 else 's'}"


def _memory_notice(cluster: LocalCluster) -> str:
    if not cluster.cgroups.promise:
        return ""
    return f"--memory is a promise, not a limit: {cluster.cgroups.promise}; to get a limit, {cluster.cgroups.remedy}"


def _plugin_notices(context: Context) -> list[str]:
    refused = [each for each in context.plugins.statuses() if each.state == REFUSED]
    return [f"plugin {each.name} is not used: {each.detail}" for each in refused] + context.plugins.problems


def _print_summary(options: UpOptions, kaiwo: Running) -> None:
    cluster = describe_nodes(list(kaiwo.cluster.state.nodes.values()), kaiwo.cluster.is_virtual)
    access = kaiwo.context.access
    login = kaiwo.url + access.login_path(access.owner)
    faults = (f"topology {name}: {fault}" for name, fault in sorted(kaiwo.context.topology.faults.items()))
    notices = (
        access.token_notice, *kaiwo.cluster.notices, _memory_notice(kaiwo.cluster), *faults,
        *_plugin_notices(kaiwo.context),
    )  # fmt: skip
    lines = [
        f"Kaiwo is up at {kaiwo.url}",
        f"  cluster   {cluster}" + (f", time x{options.speed:g}" if options.speed != 1 else ""),
        f"  page      {login}   (works once, for 5 minutes; then: kaiwo login)",
        f"  state     {options.home}",
        *(f"  note      {notice}" for notice in notices if notice),
        "  try       kaiwo submit hello --gpus 1 -- sh -c 'echo hello from $KAIWO_GPUS'",
        "Ctrl-C stops Kaiwo; running workloads continue, and the next `kaiwo up` finds them.",
    ]
    print("\n".join(lines), flush=True)
