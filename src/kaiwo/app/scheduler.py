"""Compose `kaiwo scheduler`: a Kubernetes cluster, the loop, the API and the web page in one process."""

import asyncio
import contextlib
import importlib
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kaiwo.api.settings import Settings
from kaiwo.app.audit_limits import audit_limits
from kaiwo.app.extender_tls import extender_context
from kaiwo.app.http_server import Tls, check_exposure, check_tls, serve, serve_over_tls
from kaiwo.app.interpreter_tuning import tune_interpreter
from kaiwo.app.load_policy import load_policy
from kaiwo.app.options import SchedulerOptions
from kaiwo.clusters.kubernetes.agent_tokens import AgentTokens
from kaiwo.clusters.kubernetes.client import Client, ClusterAccess, find_access
from kaiwo.clusters.kubernetes.client.connection import check_connection, find_account
from kaiwo.clusters.kubernetes.cluster import KubernetesCluster
from kaiwo.clusters.kubernetes.extender.bind_pods import ExtenderBinder
from kaiwo.clusters.kubernetes.extender.extender_server import ExtenderServer
from kaiwo.clusters.kubernetes.leader_election import LeaderElection
from kaiwo.clusters.kubernetes.person_tokens import PersonTokens
from kaiwo.history.journal_writer import Journal
from kaiwo.model.errors import ConfigError
from kaiwo.runtime.edge_points.edge_points import EdgePoints
from kaiwo.runtime.kubernetes.extender_answers import ExtenderAnswers
from kaiwo.runtime.kubernetes.leader_guard import LeaderGuard
from kaiwo.runtime.kubernetes.leadership import SINGLE_REPLICA, Leadership
from kaiwo.runtime.kubernetes.node_partitioning import KubernetesPartitioning
from kaiwo.runtime.log import begin_logging, emit, log_loop_error
from kaiwo.runtime.loop.learned_run_times import RunTimeFile, RunTimes
from kaiwo.runtime.loop.past_usage_tracker import PastUsageInQueues, PastUsageTracker
from kaiwo.runtime.loop.performance_tracker import NodeSpeedFile, PerformanceTracker
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop, first_of
from kaiwo.runtime.plugin_worker.plugin_set import PluginSet

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from kaiwo.api.context import Context
    from kaiwo.clusters.kubernetes.grants.key_rotation import GrantKeyRotation
    from kaiwo.clusters.kubernetes.webhooks.webhook_supervisor import WebhookSupervisor

WEBHOOK_START_S = 10.0  # how long the program waits at its start until the webhooks are served


class RunningScheduler(NamedTuple):
    cluster: KubernetesCluster
    loop: SchedulingLoop
    context: "Context"
    url: str
    scheduling: "asyncio.Task[None]"  # ends only when it fails


def run(options: SchedulerOptions) -> None:
    """Run until Ctrl-C or SIGTERM. Running workloads continue after that."""
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        begin_logging(options.log_level)
        asyncio.run(_run(options))


@contextlib.asynccontextmanager
async def scheduling(options: SchedulerOptions) -> AsyncIterator[RunningScheduler]:
    """Start everything, and stop it at the end of the block."""
    tls = Tls(options.tls_cert, options.tls_key)
    check_tls(tls)
    check_exposure(options.host, tls, options.insecure_http)
    asyncio.get_running_loop().set_exception_handler(log_loop_error)
    for flag, is_given in (
        ("--webhooks", options.webhooks),
        ("--grant-keys", options.grant_keys),
        ("--extender-port", options.extender_port),
    ):
        if is_given:
            _check_cryptography(flag)
    _check_agents(options)
    plugins = PluginSet(options.home, options.plugins)
    await asyncio.to_thread(plugins.load_on_thread)
    policy = load_policy(options.policy, plugins.registry)
    access = find_access(options.kubeconfig, options.context)
    problem = await check_connection(access)
    if problem:
        print(f"kaiwo: {problem}\nKaiwo tries again until it answers; Ctrl-C stops it.", file=sys.stderr, flush=True)
    guard = LeaderGuard(_leadership(options, access))
    cluster = KubernetesCluster(access, options.scheduler, emit, lambda: guard.leadership.left_s, options.is_guarded)
    cluster.moves.in_namespace(options.lease_namespace)
    cluster.client.account = access.name if problem else await find_account(access)
    cluster.cache.are_users_checked = options.is_guarded or bool(options.webhooks)
    cluster.cache.placed.extended_scheduler = options.extends if options.extender_port else ""
    past_use = PastUsageTracker.of(policy, PastUsageInQueues(cluster.cache.queue_history))
    journal = Journal(Path(options.home) / "journal")
    run_times = RunTimes(RunTimeFile(options.home))
    loop = SchedulingLoop(
        cluster,
        journal,
        policy,
        plugins.registry,
        may_decide=guard.may_decide,
        past_use=past_use,
        run_times=run_times,
        # Whoever may annotate one pod may annotate all of its namespace, also those of other users.
        performance=PerformanceTracker(policy, NodeSpeedFile(options.home), by_namespace=True),
    )
    edge = EdgePoints(plugins, loop, options.home)
    edge.attach()
    edge.notifications.may_tell = guard.may_decide
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(plugins.close)
        stack.push_async_callback(cluster.close)
        stack.push_async_callback(guard.hand_over, cluster)
        if options.grant_keys:
            keys = await _load_grant_keys(options, access, cluster)
            guard.before_leading = keys.before_leading
            signing = asyncio.create_task(keys.run(cluster.watch.wait_for_sync), name="kaiwo-grant-keys")
            stack.push_async_callback(_cancel, [signing])
        await guard.begin()
        tasks = [asyncio.create_task(loop.run(), name="kaiwo-loop"), *guard.start(cluster, loop)]
        ending = asyncio.create_task(_first_to_end(tasks), name="kaiwo-scheduling")
        stack.push_async_callback(_cancel, [*tasks, ending])
        app, context = await _make_api(options, loop)
        context.leadership, context.edge = guard.leadership, edge
        context.alerts.use_file(options.alerts)
        context.series.use_exporters(options.exporters)
        context.use_traces(options.traces)
        context.topology.plugins, context.topology.file_of = edge.calls, edge.file_of
        if options.kubernetes_tokens:
            reviews = Client(access)  # not the cluster's own client: a standby answers people, too
            stack.push_async_callback(reviews.close)
            context.access.person_tokens = PersonTokens(reviews)
        context.partitions.use_objects(KubernetesPartitioning(cluster, options.dcm_config))
        await first_of(loop.changed(0), ending)  # until the cache has synced
        tune_interpreter()
        if options.webhooks:
            webhooks = await _start_webhooks(options, access, cluster)
            stack.push_async_callback(webhooks.close)
            context.webhooks = webhooks.status
            webhooks.client.account, webhooks.client.on_write = cluster.client.account, context.cluster_wrote
        if options.extender_port:
            stack.push_async_callback((await _start_extender(options, cluster, loop, guard)).close)
        from kaiwo.runtime.kubernetes.publish_queue_status import EVERY_S, publish_queue_status

        status = publish_queue_status(context.overview, cluster.queue_status, guard.may_decide, EVERY_S)
        stack.push_async_callback(_cancel, [asyncio.create_task(status)])
        server, url = await serve(
            app, options.host, options.port, options.home, context.closing.set, tls, context.connections
        )
        stack.push_async_callback(server.stop)
        if options.agents:
            context.access.agent_tokens = AgentTokens(webhooks.client, options.agent_account)
            tls_context, stop = webhooks.certificates.context, context.closing.set
            agents, port = await serve_over_tls(
                app, options.host, options.agents_port, tls_context, stop, context.connections
            )
            stack.push_async_callback(agents.stop)
            emit("agents-served", port=port)
        stack.push_async_callback(guard.hand_over, cluster)  # runs first: the next leader need not wait
        yield RunningScheduler(cluster, loop, context, url, ending)


async def _make_api(options: SchedulerOptions, loop: SchedulingLoop) -> "tuple[Starlette, Context]":
    """Make the API. It is imported here, while the first lists arrive: the half second that it takes delays no pod."""
    await asyncio.to_thread(importlib.import_module, "kaiwo.api.application")
    from kaiwo.api.application import context_of, make_app

    settings = Settings(
        home=options.home, host=options.host, names=options.host_names, agent_token_file=options.agent_token_file,
        partitions=options.partitions, **audit_limits(options),
    )  # fmt: skip
    app = make_app(loop, settings)
    context_of(app).record_start(partitions=options.partitions)
    return app, context_of(app)


def _leadership(options: SchedulerOptions, access: ClusterAccess) -> Leadership:
    if not options.leader_elect:
        return SINGLE_REPLICA
    namespace = options.lease_namespace or access.namespace
    return LeaderElection(access, namespace, options.lease_name or options.scheduler, report=emit)


def _check_cryptography(flag: str) -> None:
    """Certificates and signatures need a package that not every installation has."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"{flag} needs the package cryptography ({error}); pip install 'kaiwo[webhook]', or remove {flag}",
            flag,
        ) from error


def _check_agents(options: SchedulerOptions) -> None:
    if bool(options.agents) != bool(options.agent_account):
        raise ConfigError("--agents and --agent-account belong together; give both or neither", "--agents")
    if options.agents and not options.webhooks:
        raise ConfigError("--agents needs the certificates of the webhooks; give --webhooks too", "--agents")


async def _load_grant_keys(
    options: SchedulerOptions, access: ClusterAccess, cluster: KubernetesCluster
) -> "GrantKeyRotation":
    """The keys are known before the first pod is read. Imported here: without keys nothing is signed."""
    from kaiwo.clusters.kubernetes.grants.key_rotation import GrantKeyRotation, GrantKeySite

    site = GrantKeySite(options.grant_keys, options.lease_namespace or access.namespace)
    refuse = cluster.event_writer.publish_refusal
    keys = GrantKeyRotation(cluster.client, cluster.cache, site, refuse, emit, cluster.now_s)
    await keys.load()
    return keys


async def _start_webhooks(
    options: SchedulerOptions, access: ClusterAccess, cluster: KubernetesCluster
) -> "WebhookSupervisor":
    """Start the webhooks. They are imported here: without them the certificate library is not loaded."""
    from kaiwo.clusters.kubernetes.webhooks.certificate_secret import WebhookSite
    from kaiwo.clusters.kubernetes.webhooks.submitting_user import MANAGER
    from kaiwo.clusters.kubernetes.webhooks.webhook_supervisor import ProcessOptions, WebhookSupervisor

    namespace = options.lease_namespace or access.namespace
    site = WebhookSite(options.webhooks, namespace, options.agents, options.host_names if options.agents else ())
    wanted = ProcessOptions(
        options.kubeconfig, options.context, options.scheduler, options.may_name_users,
        (MANAGER, *options.trusted_controllers), options.webhook_client_ca, options.webhook_client_names,
    )  # fmt: skip
    webhooks = WebhookSupervisor(access, cluster.cache, site, wanted, emit)
    await webhooks.start(options.host, options.webhook_port, WEBHOOK_START_S)
    return webhooks


async def _start_extender(
    options: SchedulerOptions, cluster: KubernetesCluster, loop: SchedulingLoop, guard: LeaderGuard
) -> ExtenderServer:
    answers = ExtenderAnswers(loop, cluster.cache)
    binder = ExtenderBinder(cluster.client, cluster.cache, answers, cluster.publish_soon, emit)
    names = cluster.cache.names
    extender = ExtenderServer(answers, binder, lambda key: names.find(key) or "", guard.may_decide)
    await extender.start(options.extender_port, await asyncio.to_thread(extender_context, options.home))
    return extender


async def _first_to_end(tasks: "Sequence[asyncio.Task[None]]") -> None:
    """A task ends by itself only when it fails."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _cancel(tasks: "Sequence[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _run(options: SchedulerOptions) -> None:
    this = asyncio.current_task()
    assert this is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)  # also while the cluster is being read
    async with scheduling(options) as kaiwo:
        _print_summary(options, kaiwo)
        await kaiwo.scheduling


def _print_summary(options: SchedulerOptions, kaiwo: RunningScheduler) -> None:
    nodes, access = kaiwo.cluster.cache.nodes, kaiwo.context.access
    gpus = sum(len(node.gpus) for node in nodes.values())
    lines = [
        f"Kaiwo schedules {kaiwo.cluster.name} for pods with schedulerName: {options.scheduler}",
        f"  cluster   {len(nodes)} nodes, {gpus} GPUs at {kaiwo.cluster.client.access.server}",
        f"  role      {_role(options, kaiwo.context.leadership)}",
        f"  page      {kaiwo.url}{access.login_path(access.owner)}   (works once, for 5 minutes; then: kaiwo login)",
        f"  state     {options.home} (the journal; everything else is in the cluster)",
        "Ctrl-C stops Kaiwo; running workloads continue.",
    ]
    print("\n".join(lines), flush=True)


def _role(options: SchedulerOptions, leadership: Leadership) -> str:
    if not options.leader_elect:
        return "single replica (--no-leader-elect)"
    if leadership.is_held:
        return "leader"
    return f"standby; {leadership.holder or 'no replica yet'} leads, and this one takes over when it fails"
