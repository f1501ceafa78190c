"""`kaiwo scheduler`: a Kubernetes cluster, the loop, the API and the page in one process.

In:    what the person or the deployment asked for.   Out: a running scheduler, and the address where to look at it.
"""

import asyncio
import contextlib
import importlib
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kaiwo.api.settings import Settings
from kaiwo.app.http_server import Tls, check_tls, serve, serve_beside
from kaiwo.app.interpreter_tuning import calm_the_interpreter
from kaiwo.app.load_policy import policy_of
from kaiwo.app.options import SchedulerOptions
from kaiwo.clusters.kubernetes.agent_tokens import AgentTokens
from kaiwo.clusters.kubernetes.client import Access, find_access
from kaiwo.clusters.kubernetes.client.connection import first_contact
from kaiwo.clusters.kubernetes.cluster import KubernetesCluster
from kaiwo.clusters.kubernetes.extender.bind_pods import ExtenderBinder
from kaiwo.clusters.kubernetes.extender.extender_server import ExtenderServer
from kaiwo.clusters.kubernetes.leader_election import LeaderElection
from kaiwo.history.journal_writer import Journal
from kaiwo.model.errors import ConfigError
from kaiwo.runtime.kubernetes.extender_answers import ExtenderAnswers
from kaiwo.runtime.kubernetes.leadership import SINGLE_REPLICA, LeaderGuard, Leadership
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.learned_run_times import InFile as RunsInFile
from kaiwo.runtime.loop.learned_run_times import RunTimes
from kaiwo.runtime.loop.past_usage_tracker import InQueues, PastUse
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop, first_of

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from kaiwo.api.context import Context
    from kaiwo.clusters.kubernetes.webhooks.webhook_server import Admission

WEBHOOKS_S = 10.0  # so long the rest waits for them


class Scheduling(NamedTuple):
    """The scheduler while it runs."""

    cluster: KubernetesCluster
    loop: SchedulingLoop
    context: "Context"
    url: str
    scheduling: "asyncio.Task[None]"  # ends only when it fails


def run(options: SchedulerOptions) -> None:
    """Until Ctrl-C or SIGTERM. Running work goes on without us."""
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(_run(options))


@contextlib.asynccontextmanager
async def scheduling(options: SchedulerOptions) -> AsyncIterator[Scheduling]:
    """Start everything, and take it down again at the end of the block."""
    tls = Tls(options.tls_cert, options.tls_key)
    check_tls(tls)
    if options.webhooks:
        _check_webhooks()
    _check_agents(options)
    policy = policy_of(options.policy)
    access = find_access(options.kubeconfig, options.context)
    if trouble := await first_contact(access):
        sys.stderr.write(f"kaiwo: {trouble}\nIt is asked again until it answers; Ctrl-C ends this.\n")
        sys.stderr.flush()
    leading = LeaderGuard(_leadership(options, access))
    cluster = KubernetesCluster(access, options.scheduler, emit, lambda: leading.leadership.left_s)
    cluster.cache.placed.extended_scheduler = options.extends if options.extender_port else ""
    past_use = PastUse.of(policy, InQueues(cluster.cache.queue_history))
    journal = Journal(Path(options.home) / "journal")
    run_times = RunTimes(RunsInFile(options.home))
    loop = SchedulingLoop(
        cluster, journal, policy, may_decide=leading.may_decide, past_use=past_use, run_times=run_times
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(cluster.close)
        stack.push_async_callback(leading.hand_over, cluster)
        await leading.begin()
        tasks = [asyncio.create_task(loop.run(), name="kaiwo-loop"), *leading.start(cluster, loop)]
        ending = asyncio.create_task(_first_to_end(tasks), name="kaiwo-scheduling")
        stack.push_async_callback(_cancel, [*tasks, ending])
        app, context = await _api(options, loop)
        context.leadership = leading.leadership
        await first_of(loop.changed(0), ending)  # every cache is warm
        calm_the_interpreter()
        if options.webhooks:
            admission = await _admission(options, access, cluster)
            stack.push_async_callback(admission.close)
            context.webhooks = admission.webhooks.tally
        if options.extender_port:
            stack.push_async_callback((await _extender(options, cluster, loop, leading)).close)
        from kaiwo.runtime.kubernetes.publish_queue_status import EVERY_S, publish_queue_status

        status = publish_queue_status(context.overview, cluster.queue_status, leading.may_decide, EVERY_S)
        stack.push_async_callback(_cancel, [asyncio.create_task(status)])
        server, url = await serve(app, options.host, options.port, options.home, context.closing.set, tls)
        stack.push_async_callback(server.stop)
        if options.agents:
            context.access.agent_tokens = AgentTokens(admission.client, options.agent_account)
            trusted, stop = admission.custodian.context, context.closing.set
            door, port = await serve_beside(app, options.host, options.agents_port, trusted, stop)
            stack.push_async_callback(door.stop)
            emit("agents-served", port=port)
        stack.push_async_callback(leading.hand_over, cluster)  # first of all: the next leader need not wait for us
        yield Scheduling(cluster, loop, context, url, ending)


async def _api(options: SchedulerOptions, loop: SchedulingLoop) -> "tuple[Starlette, Context]":
    """Loaded here, beside the first lists: half a second that no pod has to wait for."""
    await asyncio.to_thread(importlib.import_module, "kaiwo.api.application")
    from kaiwo.api.application import context_of, make_app

    settings = Settings(
        home=options.home, host=options.host, names=options.host_names, agent_token_file=options.agent_token_file,
        partitions=options.partitions, dcm_config=options.dcm_config,
    )  # fmt: skip
    app = make_app(loop, settings)
    return app, context_of(app)


def _leadership(options: SchedulerOptions, access: Access) -> Leadership:
    if not options.leader_elect:
        return SINGLE_REPLICA
    namespace = options.lease_namespace or access.namespace
    return LeaderElection(access, namespace, options.lease_name or options.scheduler, report=emit)


def _check_webhooks() -> None:
    """Before anything is read: their certificates need a package that not every installation has."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"webhooks need the package cryptography ({error}); pip install 'kaiwo[webhook]', or leave --webhooks out",
            "--webhooks",
        ) from error


def _check_agents(options: SchedulerOptions) -> None:
    if bool(options.agents) != bool(options.agent_account):
        raise ConfigError("--agents and --agent-account belong together; give both, or none", "--agents")
    if options.agents and not options.webhooks:
        raise ConfigError("--agents are served with the webhooks' certificates; give --webhooks too", "--agents")


async def _admission(options: SchedulerOptions, access: Access, cluster: KubernetesCluster) -> "Admission":
    """Loaded here: a scheduler without webhooks need not pay for their certificates."""
    from kaiwo.clusters.kubernetes.webhooks.webhook_server import Admission, House, Site

    namespace = options.lease_namespace or access.namespace
    site = Site(options.webhooks, namespace, options.agents, options.host_names if options.agents else ())
    house = House(options.scheduler, frozenset(options.may_name_users))
    admission = Admission(access, cluster.cache, site, house, emit)
    await admission.start(options.host, options.webhook_port, WEBHOOKS_S)
    return admission


async def _extender(
    options: SchedulerOptions, cluster: KubernetesCluster, loop: SchedulingLoop, leading: LeaderGuard
) -> ExtenderServer:
    judge = ExtenderAnswers(loop, cluster.cache)
    binder = ExtenderBinder(cluster.client, cluster.cache, judge, cluster.publish_soon, emit)
    names = cluster.cache.names
    extender = ExtenderServer(judge, binder, lambda key: names.find(key) or "", leading.may_decide)
    await extender.start(options.extender_port)
    return extender


async def _first_to_end(tasks: "Sequence[asyncio.Task[None]]") -> None:
    """None of them ends by itself unless it failed."""
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
        _greet(options, kaiwo)
        await kaiwo.scheduling


def _greet(options: SchedulerOptions, kaiwo: Scheduling) -> None:
    nodes = kaiwo.cluster.cache.nodes
    gpus = sum(len(node.gpus) for node in nodes.values())
    lines = [
        f"Kaiwo schedules {kaiwo.cluster.name} for pods with schedulerName: {options.scheduler}",
        f"  cluster   {len(nodes)} nodes, {gpus} GPUs at {kaiwo.cluster.client.access.server}",
        f"  role      {_role(options, kaiwo.context.leadership)}",
        f"  page      {kaiwo.url}{kaiwo.context.access.login_path()}   (works once)",
        f"  state     {options.home} (the journal; everything else is in the cluster)",
        "Ctrl-C stops Kaiwo; running work goes on.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _role(options: SchedulerOptions, leadership: Leadership) -> str:
    if not options.leader_elect:
        return "the only one (--no-leader-elect)"
    if leadership.is_held:
        return "leader; it decides"
    return f"standby; {leadership.holder or 'nobody yet'} leads, and this one takes over when it dies"
