"""`kaiwo describe`: show one object in detail."""

import contextlib
import re
import shlex
from collections import Counter

import click

from kaiwo.api.views.cluster import CycleView
from kaiwo.api.views.nodes import GpuView, NodeView
from kaiwo.api.views.queues import QueueView
from kaiwo.api.views.reservations import ReservationView
from kaiwo.api.views.workloads import PastAttemptView, WhyView, WorkloadDetail, WorkloadView
from kaiwo.cli.client.api_client import ApiClient, workload_path
from kaiwo.cli.lists import columns
from kaiwo.cli.lists.array_tasks import read_tasks
from kaiwo.cli.lists.object_kinds import GPUS, KINDS, NODES, QUEUES, RESERVATIONS, WORKLOADS, find_kind, require_kind
from kaiwo.cli.lists.read_object import complete_object, read_object, server_time
from kaiwo.cli.lists.show_list import ListRequest, print_list
from kaiwo.cli.name_completion import chosen_tasks, complete_workload, expand_name
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import full_name, short_name
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import count, duration, gpus, rate, rounded_memory, short_duration, thousandths
from kaiwo.model.errors import KaiwoError, NotFoundError
from kaiwo.model.workload_record import WorkloadState

SHOWN_TASKS = 20
PROMISE = "a promise, not a limit"


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    kinds = [kind.singular for kind in KINDS if kind.singular.startswith(incomplete)]
    return kinds + complete_workload(ctx, parameter, incomplete)


@click.command(cls=Verb)
@click.argument("kind", metavar="[KIND]", shell_complete=_complete)
@click.argument("name", required=False, metavar="NAME", shell_complete=complete_object)
@click.option(
    "--submission",
    metavar="N",
    type=click.IntRange(1),
    help="Submission of a workload's name that was used again (default: latest).",
)
@printing.output_option("table", "json", "yaml")
def describe(kind: str, name: str | None, submission: int | None, output: str) -> None:  # fmt: skip
    """Show one workload, array, node, queue, gpu, cycle or reservation in detail.

    \b
    Examples:
      kaiwo describe train
      kaiwo describe train --submission 1
      kaiwo describe node node-1
      kaiwo describe gpu node-1/gpu-0
    """
    if name is None and (found := find_kind(kind)) is not None:
        raise click.UsageError(f"give the name of the {found.singular} to describe", click.get_current_context())
    chosen = WORKLOADS if name is None else require_kind(kind)
    if submission is not None and chosen is not WORKLOADS:
        raise click.UsageError("only workloads have submissions; leave out --submission", click.get_current_context())
    server = connect_server()
    try:
        body = read_object(server, chosen, name or kind, submission)
    except NotFoundError:
        if chosen is WORKLOADS and submission is None and _describe_array(server, name or kind, output):
            return
        raise
    if output != "table":
        printing.print_body(body, output)
    elif chosen is WORKLOADS:
        detail = server.decode(body, WorkloadDetail)
        _print_workload(detail, server_time(server), "" if submission is not None else _protected(server, detail))
    elif chosen is NODES:
        _print_node(server.decode(body, NodeView))
    elif chosen is QUEUES:
        from kaiwo.cli.verbs.inspect.queue import print_queue

        print_queue(server.decode(body, QueueView))
    elif chosen is RESERVATIONS:
        from kaiwo.cli.verbs.operate.reservations import print_reservation

        print_reservation(server.decode(body, ReservationView), server_time(server))
    elif chosen is GPUS:
        _print_gpu(server.decode(body, GpuView))
    else:
        _print_cycle(server.decode(body, CycleView), server_time(server))


def _describe_array(server: ApiClient, name: str, output: str) -> bool:
    """What its tasks ask for and in which state each is; False: there is no such array."""
    chosen = chosen_tasks(name)
    tasks = read_tasks(server, full_name(name) if chosen is None else chosen.array, folds=False)
    if chosen is not None and tasks:
        named = set(expand_name(server, name))
        tasks = [each for each in tasks if each["name"] in named]
    if not tasks:
        return False
    if output != "table":
        printing.print_data({"items": tasks, "total": len(tasks), "next": ""}, output)
        return True
    (row,) = server.convert(
        read_tasks(server, full_name(name) if chosen is None else chosen.array, folds=True), list[WorkloadView]
    )
    array = row.array
    counts = array.states if array and chosen is None else Counter(each["state"] for each in tasks)
    indices = f" ({array.indices})" if array and chosen is None else ""
    printing.print_facts(
        ("array", row.name.removesuffix("-*") if chosen is None else full_name(name)),
        ("tasks", f"{len(tasks):,}{indices}"),
        ("states", ", ".join(f"{number:,} {state}" for state, number in counts.items())),
        ("queue", f"{row.queue}, priority {row.priority}"),
        ("user", row.user),
        ("each wants", row.wants.partition(" x ")[2] or row.wants),
    )
    click.echo()
    print_list(server, WORKLOADS, ListRequest(), server.convert(tasks[:SHOWN_TASKS], list[WorkloadView]))
    if len(tasks) > SHOWN_TASKS:
        more = (
            f"the first {SHOWN_TASKS} of {len(tasks):,} tasks; all: kaiwo get workloads {short_name(row.name)} --tasks"
        )
        printing.hint(more.replace("-* --tasks", " --tasks"))
    return True


def _protected(server: ApiClient, detail: WorkloadDetail) -> str:
    """What its place protects, if it runs."""
    if detail.summary.state is not WorkloadState.RUNNING:
        return ""
    with contextlib.suppress(KaiwoError):  # it may have ended since
        return server.decode(server.get(f"{workload_path(detail.summary.name)}/why"), WhyView).protected
    return ""


def _exit_text(detail: WorkloadDetail) -> str:
    """The exit code; empty for a cancelled workload without one: it may never have run."""
    has_code = detail.summary.state is not WorkloadState.CANCELLED or detail.exit_code
    return f", exit code {detail.exit_code}" if has_code else ""


def _ago(at_s: int, now: int) -> str:
    return f"{short_duration(now - at_s)} ago" if at_s else ""


def _levels(detail: WorkloadDetail) -> str:
    """`one leaf required, one node preferred`."""
    each = " for each role" if detail.roles_level else ""
    parts = [
        f"one {detail.roles_level} for all roles" if detail.roles_level else "",
        f"one {detail.required_level}{each} required" if detail.required_level else "",
        f"one {detail.preferred_level}{each} preferred" if detail.preferred_level else "",
        f"{detail.segment_size} pods in one {detail.segment_level}" if detail.segment_size else "",
        detail.placement_strategy,
        f"{rate(detail.bandwidth_mb_s)} for each pod" if detail.bandwidth_mb_s else "",
    ]
    return ", ".join(filter(None, parts))


def _print_workload(detail: WorkloadDetail, now: int, protected: str) -> None:
    w = detail.summary
    if detail.expires_s > now:
        expires = f"in {duration(detail.expires_s - now)}; its GPUs are released then"
    else:
        expires = _ago(detail.expires_s, now)
    delay = f"waits {duration(detail.preemption_delay_s)} before it may preempt others"
    printing.print_facts(
        ("workload", w.name),
        ("state", f"{w.state}: {detail.message}" if detail.message else w.state.value),
        ("queue", f"{w.queue}, priority {w.priority}"),
        ("user", w.user),
        ("type", w.kind + ("" if detail.preemptible else ", not preemptible")),
        ("wants", w.wants),
        ("strategy", detail.strategy),
        ("requests", "; ".join(detail.requests)),
        ("pods", f"{w.pods.used} of {w.pods.total} placed"),
        ("submitted", f"{short_duration(now - w.submitted_s)} ago"),
        ("started", f"{_ago(w.started_s, now)}, attempt {w.attempt}" if w.started_s else ""),
        ("ended", _ago(w.ended_s, now) + _exit_text(detail) if w.ended_s else ""),
        ("memory", f"{PROMISE}: {detail.memory_promise}; see: kaiwo doctor" if detail.memory_promise else ""),
        ("peak memory", rounded_memory(detail.attempts[-1].peak_mib) if _has_peak(detail) else ""),
        ("time limit", duration(detail.time_limit_s) if detail.time_limit_s else ""),
        ("reservation", detail.reservation),
        ("levels", _levels(detail)),
        ("expires", expires),
        ("estimate", duration(detail.estimate_s) if detail.estimate_s else ""),
        ("preemption delay", delay if detail.preemption_delay_s else ""),
        ("last checkpoint", _ago(min(detail.checkpoint_s, now), now)),
        ("progress", detail.progress),
        ("restart cost", duration(detail.restart_s) if detail.restart_s else ""),
        ("earlier runs", f"up to {duration(detail.learned_s)}" if detail.learned_s else ""),
        ("retries", str(detail.retries) if detail.retries else ""),
        ("after", ", ".join(short_name(name) for name in detail.after)),
        ("command", shlex.join(detail.command)),
        ("image", detail.image),
        ("not shown", detail.hidden),
        ("variables", ", ".join(f"{name} (secret)" for name in detail.secret_env)),
        ("labels", _pairs(w.labels)),
        ("submission", _submissions(detail)),
    )
    incomplete = f"{short_name(w.name)} is {detail.incomplete}" if detail.incomplete else ""
    placed = [each.sentence for each in detail.domains]
    for sentence in filter(
        None, (detail.capped_priority, detail.planned, incomplete, detail.kept_places, *placed, protected)
    ):
        click.echo("\n" + printing.wrap(printing.as_sentence(sentence)))
    if detail.placed:
        _print_pods(detail, now)
    if attempts := [each for each in detail.attempts if each.ended_s or len(detail.attempts) > 1]:
        rows = [
            [str(a.attempt), _ago(a.started_s, now), short_duration((a.ended_s or now) - a.started_s),
             ", ".join(a.nodes), device_names([device.partition("/")[2] for device in a.devices]), _ending(a)]
            for a in attempts
        ]  # fmt: skip
        _print_table(("ATTEMPT", "STARTED", "TOOK", "NODES", "DEVICES", "ENDED"), rows)
    if detail.obstacles:
        click.echo("\nObstacles:")
        printing.print_obstacles(detail.obstacles)
        click.echo(f"\nsee what would start it: kaiwo why {short_name(w.name)}")


def _print_pods(detail: WorkloadDetail, now: int) -> None:
    """In the order of ranks, where it has ranks."""
    pods = [[p.name, p.node, p.phase, short_duration(now - p.since_s), device_names(p.devices)] for p in detail.placed]
    titles: tuple[str, ...] = ("POD", "NODE", "PHASE", "SINCE", "DEVICES")
    if any(pod.rank >= 0 for pod in detail.placed):
        ranks = [pod.rank for pod in detail.placed]
        numbered = [[str(rank) if rank >= 0 else "", *row] for rank, row in zip(ranks, pods, strict=True)]
        order = sorted(range(len(ranks)), key=lambda at: (ranks[at] < 0, ranks[at], at))
        titles, pods = ("RANK", *titles), [numbered[at] for at in order]
    _print_table(titles, pods)


def _has_peak(detail: WorkloadDetail) -> bool:
    """Whether the memory use of its last attempt is known."""
    return bool(detail.attempts and detail.attempts[-1].peak_mib)


def _submissions(detail: WorkloadDetail) -> str:
    """Empty for a name that was submitted once."""
    if detail.submissions in ([], [detail.submission]):
        return "" if detail.submission == 1 else str(detail.submission)
    others = ", ".join(str(number) for number in detail.submissions if number != detail.submission)
    command = f"kaiwo describe {short_name(detail.summary.name)} --submission N"
    return f"{detail.submission}; also kept: {others} (see {command})"


def _ending(attempt: PastAttemptView) -> str:
    if not attempt.ended_s:
        return attempt.message or "still running"
    return attempt.message or f"exit code {attempt.exit_code}"


def _print_node(node: NodeView) -> None:
    printing.print_facts(
        ("node", node.name),
        ("state", f"{node.state}: {node.reason}" if node.reason else node.state),
        ("GPUs", f"{thousandths(node.gpu_milli.used)} of {thousandths(node.gpu_milli.total)} in use"),
        ("CPUs", f"{thousandths(node.cpu_milli.used)} of {thousandths(node.cpu_milli.total)} in use"),
        ("memory", f"{rounded_memory(node.memory_mib.used)} of {rounded_memory(node.memory_mib.total)} in use"),
        ("pods", f"{node.pods.used} of {node.pods.total}"),
        ("agent", f"{node.agent.state}, last report {node.agent.heard_ago_s} s ago" if node.agent else ""),
        ("labels", _pairs(node.labels)),
        ("taints", ", ".join(node.taints)),
    )
    if node.gpus:
        shown = [column for column in columns.GPU if column.title != "NODE" and not column.is_wide]
        click.echo()
        printing.print_table(shown, [columns.table_row(shown, gpu, 0) for gpu in node.gpus])


def _print_gpu(gpu: GpuView) -> None:
    state = columns.gpu_state(gpu)
    printing.print_facts(
        ("GPU", f"{gpu.node}/{gpu.id}"),
        ("model", gpu.model),
        ("state", f"{state}: {gpu.reason}" if gpu.reason else state),
        ("free", f"{gpus(gpu.free_milli)}, {rounded_memory(gpu.free_mib)} of {rounded_memory(gpu.memory_mib)}"),
    )
    if gpu.tenants:
        rows = [
            [short_name(t.workload), t.pod, t.phase, thousandths(t.milli), rounded_memory(t.mib), t.grade]
            for t in gpu.tenants
        ]
        _print_table(("WORKLOAD", "POD", "PHASE", "SHARE", "MEMORY", "GRADE"), rows)


def _print_cycle(cycle: CycleView, now: int) -> None:
    printing.print_facts(
        ("cycle", f"{cycle.number}, {short_duration(now - cycle.at_s)} ago"),
        ("decided", f"{count(cycle.starts, 'start')}, {count(cycle.evictions, 'eviction')}"),
        ("waiting", f"{count(cycle.waits, 'group')} of waiting workloads with new reasons"),
        ("took", f"{cycle.took_ms:.1f} ms, {cycle.steps} steps"),
        ("notes", "; ".join(cycle.notes)),
    )
    click.echo(f"\ndecide this cycle again: kaiwo replay {cycle.number}")


def _print_table(titles: tuple[str, ...], rows: list[list[str]]) -> None:
    click.echo()
    printing.print_table(text_columns(titles), rows)


def device_names(devices: list[str]) -> str:
    """Consecutive devices as a range: `gpu-0 to gpu-7`."""
    ends = [re.fullmatch(r"(.*?)(\d+)", device) for device in devices]
    if len(devices) >= 3 and all(ends) and len({end[1] for end in ends if end}) == 1:
        numbers = [int(end[2]) for end in ends if end]
        if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            return f"{devices[0]} to {devices[-1]}"
    return ", ".join(devices)


def _pairs(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
