"""The input of work that somebody runs in the foreground: whether it can be connected, and where.

In:    a submission that names its person's seat.   Out: the same with an input, or a warning that says why it has none.
Never: carries the input itself: it goes over a socket in the run's folder, which only its owner can open.
"""

from typing import Any

from msgspec.structs import replace

from kaiwo.api.endpoint import Call, Route
from kaiwo.api.http.query_params import Param
from kaiwo.api.routes.workloads import NAMED, find_record
from kaiwo.api.security.process_identity import process_identity
from kaiwo.api.views import ConsoleView
from kaiwo.clusters.embedded.cluster import EmbeddedCluster
from kaiwo.manifests import Parsed
from kaiwo.model.workload_record import Program

INPUT_FROM = Param(
    "input_from",
    "text",
    "Where the person sits who wants to be its standard input, as `kaiwo run` says it. On the same machine the work "
    "waits for them at its start, and is never started again.",
)


async def console(call: Call) -> ConsoleView:
    """Where its input is taken."""
    record = find_record(call)
    cluster = call.context.live.cluster
    folder = cluster.console_of(record.workload.name) if record.program.is_interactive else ""
    return ConsoleView(record.program.is_interactive, folder)


def with_input(cluster: Any, parsed: Parsed, input_from: str) -> Parsed:
    """Work that takes its input from the person who sits there."""
    items = parsed.submissions
    if why := next((why for _, program in items if (why := _why_not(cluster, program, input_from))), ""):
        return replace(parsed, warnings=(*parsed.warnings, f"its input is empty, not yours: {why}"))
    return replace(parsed, submissions=tuple((work, replace(program, is_interactive=True)) for work, program in items))


def _why_not(cluster: Any, program: Program, input_from: str) -> str:
    if not program.command:
        return "no process runs for it"
    if program.retries:
        return "work with retries may start again, when nobody sits there any more"
    if not isinstance(cluster, EmbeddedCluster) or not cluster.world.runs_processes:
        return "this cluster runs no processes of its own"
    if not input_from or input_from != process_identity():
        return "this Kaiwo runs on another machine, in a container, or as another user"
    return ""


ROUTES = (
    Route("GET", NAMED + "/console", "Where its input is taken, if anywhere.", console, ConsoleView, errors=(404,)),
)
