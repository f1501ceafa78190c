"""Complete names in the shell, and resolve the user `me` and the base names of arrays."""

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kaiwo.cli.output.formatting import full_name, short_name

if TYPE_CHECKING:
    from kaiwo.cli.client.api_client import ApiClient

ARRAY_LABEL, INDEX_LABEL = "kaiwo.ai/array", "kaiwo.ai/array-index"
COMPLETION_TIMEOUT_S = 1.0
COMPLETION_LIMIT = 100
PAGE_SIZE = 500  # the largest page that the server returns
_INDICES = re.compile(r"([^\[\]]+)\[([0-9,:-]+)\]")  # tasks of an array: `sweep[0-9]`
UNPAGED = ("/queues", "/reservations")  # they also have no filter by name
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_workload(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of workloads with this prefix: short ones, or with the namespace where one was begun."""
    names = _server_names(ctx, "/workloads", incomplete)
    taken = {full_name(name) for name in ctx.params.get("names") or () if isinstance(name, str) and name}
    shown = {name: name if "/" in incomplete else short_name(name) for name in names if name not in taken}
    return [name for name in shown.values() if name.startswith(incomplete)]


def _completion(path: str) -> Complete:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        return [name for name in _server_names(ctx, path, incomplete) if name.startswith(incomplete)]

    return complete


complete_node, complete_queue, complete_reservation = map(_completion, ("/nodes", "/queues", "/reservations"))


def complete_gpu(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """`node-1/gpu-0`: nodes first, and after the slash the GPUs of one."""
    node, slash, _ = incomplete.partition("/")
    if not slash:
        return [f"{name}/" for name in complete_node(ctx, parameter, incomplete)]
    names = (f"{node}/{gpu_id}" for gpu_id in _server_names(ctx, "/gpus", node=node))
    return [name for name in names if name.startswith(incomplete)]


def resolve_user(name: str) -> str:
    """The user name that was given; `me` is the person whose token is used, or else the current user."""
    if name != "me":
        return name
    return _person_of_token() or current_user()


def current_user() -> str:
    """The user of this machine who runs this command."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER", "")


def _person_of_token() -> str:
    """Empty for the token of the server's owner, who may submit for others, and for servers that know no people."""
    from kaiwo.cli.verb_base import connect_server, server_location
    from kaiwo.model.errors import NotFoundError

    server = connect_server()
    if server.token_source not in ("KAIWO_TOKEN", server_location().saved_tokens_file):
        return ""
    from kaiwo.api.views.people import IdentityView

    try:
        person = server.decode(server.get("/whoami"), IdentityView)
    except NotFoundError:
        return ""
    return "" if person.credential == "token" else person.name


def expand_name(server: "ApiClient", name: str, states: Sequence[str] = ()) -> list[str]:
    """The full names that a name or a pattern stands for. NotFoundError: a pattern that matches nothing."""
    from kaiwo.model.errors import NotFoundError

    if not is_pattern(name):
        return [full_name(name)]
    if chosen := chosen_tasks(name):
        there = array_members(server, chosen.array)
        if not there:
            raise NotFoundError(f"there is no array {short_name(chosen.array)}; see: kaiwo get workloads")
        members = set(array_members(server, chosen.array, states) if states else there)
        found = [task for task in chosen.names if task in members]
        if not found:
            in_states = f" that is {' or '.join(states)}" if states else ""
            array, asked = short_name(chosen.array), short_name(full_name(name))
            raise NotFoundError(
                f"array {array} has no task {asked}{in_states}; list them with: kaiwo get workloads {array} --tasks"
            )
        return found
    array = full_name(name).removesuffix("-*")
    found = ([] if is_pattern(array) else array_members(server, array, states)) or match_names(server, name, states)
    if not found:
        in_states = f" that is {' or '.join(states)}" if states else ""
        raise NotFoundError(f"no workload{in_states} matches {name}; see: kaiwo get workloads")
    return found


class ChosenTasks(NamedTuple):
    """`sweep[0-9]`: the full name of the array, and those of the chosen tasks, which may not exist."""

    array: str
    names: list[str]


def chosen_tasks(name: str) -> ChosenTasks | None:
    """None: the name chooses no tasks of an array by index."""
    match = _INDICES.fullmatch(full_name(name))
    if match is None:
        return None
    from kaiwo.manifests.text.field_errors import FieldPath
    from kaiwo.manifests.values.names import read_array

    return ChosenTasks(match[1], [f"{match[1]}-{index}" for index in read_array(match[2], FieldPath("", name)).indices])


def by_array(items: Sequence[dict[str, Any]]) -> list[str]:
    """The names of listed workloads; several tasks of an array become one name, such as `default/sweep[2,4-9]`."""
    indices: dict[str, list[int]] = {}
    for item in items:
        name, labels = str(item["name"]), item.get("labels") or {}
        array = f"{name.partition('/')[0]}/{labels.get(ARRAY_LABEL, '')}"
        index = str(labels.get(INDEX_LABEL, ""))
        is_task = index.isdecimal() and name == f"{array}-{index}"
        indices.setdefault(array if is_task else name, []).extend([int(index)] if is_task else ())
    return [
        name if not found else f"{name}-{found[0]}" if len(found) == 1 else f"{name}[{_spans(sorted(found))}]"
        for name, found in indices.items()
    ]


def _spans(indices: Sequence[int]) -> str:
    """`0-3,7`."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def resolve_workloads(server: "ApiClient", name: str) -> list[str]:
    """The full name of a workload, or of all tasks of the array with this base name."""
    full = full_name(name)
    return array_members(server, full.removesuffix("-*")) if is_array(server, full) else [full]


def is_array(server: "ApiClient", full: str) -> bool:
    """Whether it is the base name of an array, and not the name of a workload. NotFoundError: it is neither.

    `sweep-*` means all tasks of the array, as `describe` and `why` print it.
    """
    from kaiwo.cli.client.api_client import workload_path
    from kaiwo.model.errors import NotFoundError

    try:
        server.get(workload_path(full))
    except NotFoundError:
        if not array_members(server, full.removesuffix("-*"), most=1):
            raise
        return True
    return False


def named_tasks(server: "ApiClient", full: str, states: Sequence[str] = (), most: int = 0) -> list[str]:
    """Tasks in these states of the array that is named `default/sweep`, `default/sweep-*` or `default/sweep[0-9]`."""
    chosen = chosen_tasks(full)
    if chosen is None:
        return array_members(server, full.removesuffix("-*"), states, most)
    there = expand_name(server, full)
    if not states:
        return there
    members = set(array_members(server, chosen.array, states))
    return [task for task in there if task in members]


def first_waiting(server: "ApiClient", full: str) -> str:
    """The first task that waits of the array with this name; its first task if none waits; empty if there is none."""
    from kaiwo.cli.output import printing
    from kaiwo.model.workload_record import WorkloadState

    waiting = named_tasks(server, full, (WorkloadState.WAITING, WorkloadState.HELD))
    chosen = chosen_tasks(full)
    if waiting and not (chosen and len(chosen.names) == 1):
        wait = "task of the array waits" if len(waiting) == 1 else "tasks of the array wait; this is the first of them"
        printing.hint(f"{len(waiting):,} {wait}")
    return next(iter(waiting or named_tasks(server, full, most=1)), "")


def is_pattern(name: str) -> bool:
    """Whether it stands for several names, as `sweep-*`, `sweep[0-9]` and `test-?` do."""
    return "*" in name or "?" in name or _INDICES.fullmatch(name) is not None


def is_array_pattern(server: "ApiClient", full: str) -> bool:
    """Whether it stands for tasks of an array that exists: `default/sweep-*`, `default/sweep[0-9]`."""
    match = _INDICES.fullmatch(full)
    array = match[1] if match else full.removesuffix("-*")
    return array != full and not is_pattern(array) and bool(array_members(server, array, most=1))


def match_names(server: "ApiClient", pattern: str, states: Sequence[str]) -> list[str]:
    """The full names of workloads in these states that match; in other namespaces only where the pattern says so."""
    return [str(item["name"]) for item in match_workloads(server, pattern, states)]


def match_workloads(server: "ApiClient", pattern: str, states: Sequence[str]) -> list[dict[str, Any]]:
    """The same as plain data, ordered by name."""
    from fnmatch import fnmatchcase

    from kaiwo.api.views.answers import Page

    namespace, _, base = full_name(pattern).partition("/")
    literal = max(re.split(r"[*?]", base), key=len)
    query: dict[str, Any] = {"limit": PAGE_SIZE, **({"q": literal} if literal else {})}
    if states:
        query["state"] = ",".join(states)
    whole = f"{namespace}/{base}".replace("[", "[[]")
    found: list[dict[str, Any]] = []
    while True:
        page = server.decode(server.get("/workloads", query), Page[dict[str, Any]])
        found += [item for item in page.items if fnmatchcase(str(item["name"]), whole)]
        if not page.next:
            return sorted(found, key=lambda item: str(item["name"]))
        query["after"] = page.next


def array_members(server: "ApiClient", full: str, states: Sequence[str] = (), most: int = 0) -> list[str]:
    """Tasks of the array with this base name, ordered by index: in these states, or at least `most` of them."""
    from kaiwo.api.views.answers import Page
    from kaiwo.api.views.workloads import WorkloadView

    namespace, _, base = full.partition("/")
    found: list[WorkloadView] = []
    query: dict[str, Any] = {"label": f"{ARRAY_LABEL}={base}", "limit": PAGE_SIZE}
    if states:
        query["state"] = ",".join(states)
    while True:
        page = server.decode(server.get("/workloads", query), Page[WorkloadView])
        found += [w for w in page.items if w.name.startswith(f"{namespace}/")]
        if not page.next or (most and len(found) >= most):
            break
        query["after"] = page.next
    return [w.name for w in sorted(found, key=lambda w: int(w.labels.get(INDEX_LABEL, "0")))]


def _server_names(ctx: click.Context, path: str, start: str = "", node: str = "") -> list[str]:
    """Names from the running server, or the ids of a node's GPUs; empty on any error: completion must stay silent."""
    from kaiwo.api.views.answers import Page
    from kaiwo.cli.client.find_server import ServerLocation, connect
    from kaiwo.model.errors import KaiwoError

    location = ServerLocation(ctx.meta.get("kaiwo.server", ""), ctx.meta.get("kaiwo.home", ""))
    query: dict[str, Any] = {"limit": COMPLETION_LIMIT} if path not in UNPAGED else {}
    if start and query:
        query["q"] = start.rpartition("/")[2] or start  # `team/`: whatever is in that namespace
    if node:
        query["node"] = node
    try:
        server = connect(location, COMPLETION_TIMEOUT_S)
        return [
            item["id" if node else "name"]
            for item in server.decode(server.get(path, query), Page[dict[str, Any]]).items
        ]
    except (KaiwoError, KeyError):
        return []
