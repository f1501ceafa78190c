"""Routes about the console of a foreground workload: whether a terminal can be attached to its input, and where.

The input itself goes over a socket in the run's folder, which only its owner can open.
"""

from msgspec.structs import replace

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.query_params import Param
from kaiwo.api.routes.workloads import NAMED, find_record
from kaiwo.api.security.own_work import check_sight
from kaiwo.api.security.process_identity import process_identity
from kaiwo.api.views.workloads import ConsoleView
from kaiwo.clusters.protocol import Cluster
from kaiwo.manifests import Parsed
from kaiwo.model.workload_record import Program

INPUT_FROM = Param(
    "input_from",
    "text",
    "Identity of the process that wants to be its standard input, as `kaiwo run` sends it. On the same machine the "
    "workload waits for it at the start, and is never restarted.",
)


async def console(call: EndpointCall) -> ConsoleView:
    record = find_record(call)
    check_sight(call.context.access, call.person, record, "console")
    console = call.context.live.cluster.abilities.console
    folder = console.console_of(record.workload.name) if console and record.program.is_interactive else ""
    return ConsoleView(record.program.is_interactive, folder)


def with_input(cluster: Cluster, parsed: Parsed, input_from: str) -> Parsed:
    """The same work with its standard input attached to that process, or with a warning why not."""
    items = parsed.submissions
    if why := next((why for _, program in items if (why := _why_not(cluster, program, input_from))), ""):
        return replace(parsed, warnings=(*parsed.warnings, f"it cannot read from your terminal: {why}"))
    return replace(parsed, submissions=tuple((work, replace(program, is_interactive=True)) for work, program in items))


def _why_not(cluster: Cluster, program: Program, input_from: str) -> str:
    if not program.command:
        return "no process runs for it"
    if program.retries:
        return "work with retries may start again after the terminal is gone"
    if cluster.abilities.console is None:
        return "this cluster runs no local processes"
    if not input_from or input_from != process_identity():
        return "this Kaiwo runs on another machine, in a container, or as another user"
    return ""


SUMMARY = "Where its standard input is attached, if anywhere."
ROUTES = (Route("GET", NAMED + "/console", SUMMARY, console, ConsoleView, errors=(404,)),)
