"""The options of every list: output, filters, order and limit, checked against the kind of object.

In:    flags.   Out: a frozen Wish, or a ConfigError that names what makes no sense.
"""

from collections.abc import Callable
from typing import Any

import click
import msgspec

from kaiwo.cli.lists.object_kinds import WORKLOADS, ObjectKind
from kaiwo.cli.name_completion import complete_queue
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import FINISHED_STATES, UNFINISHED_STATES, parse_pair
from kaiwo.model.errors import ConfigError
from kaiwo.model.reservation import ReservationPhase
from kaiwo.model.workload_record import WorkloadState

DEFAULT_LIMIT = 500
STATES: dict[str, tuple[str, ...]] = {
    "workload": tuple(state.value for state in WorkloadState),
    "node": ("ready", "cordoned", "not-ready"),
    "gpu": ("free", "shared", "full", "unhealthy", "draining", "changing"),
    "reservation": tuple(phase.value for phase in ReservationPhase),
}


class ListRequest(msgspec.Struct, frozen=True):
    """What to list and how to print it."""

    output: str = "table"
    watch: bool = False
    labels: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    queue: str = ""
    sort_by: str = ""
    limit: int = DEFAULT_LIMIT  # 0: all
    no_headers: bool = False
    query: dict[str, str] = {}  # more filters of the API


def list_options(kind: ObjectKind | None = None) -> Callable[[Any], Any]:
    """Add the options for lists of this kind; without a kind, those of all kinds."""
    of_queue = "Only this queue and those below it."
    choices = {
        "label": click.option(
            "-l",
            "--label",
            "labels",
            multiple=True,
            metavar="KEY=VALUE",
            help="Only with this label. Repeatable.",
        ),
        "state": click.option("--state", "states", multiple=True, metavar="STATE", help=_state_help(kind)),
        "queue": click.option(
            "-q", "--queue", metavar="QUEUE", default="", shell_complete=complete_queue, help=of_queue
        ),
    }
    options = (
        printing.output_option(),
        click.option("-w", "--watch", is_flag=True, help="Keep it up to date; Ctrl-C to stop."),
        *(option for name, option in choices.items() if kind is None or name in kind.filters),
        click.option("--sort-by", default="", metavar="COLUMN", help="Sort by this column; -COLUMN reverses it."),
        click.option(
            "--limit",
            metavar="N",
            default=DEFAULT_LIMIT,
            show_default=True,
            type=click.IntRange(0),
            help="Show at most N; 0 for all.",
        ),
        click.option("--no-headers", is_flag=True, help="Omit the header row."),
    )

    def add_all(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add_all


def _state_help(kind: ObjectKind | None) -> str:
    known = STATES.get(kind.singular, ()) if kind else ()
    states = f"{', '.join(known[:-1])} or {known[-1]}" if known else "in this state"
    return f"Only {states}; several as a,b."


def make_list_request(kind: ObjectKind, query: dict[str, str] | None = None, **options: Any) -> ListRequest:
    """Check the options against the kind; an option that it does not support is an error."""
    states = tuple(part for text in options.pop("states", ()) for part in text.split(",") if part)
    request = ListRequest(states=_check_states(kind, states), query=query or {}, **options)
    for name, given in (("label", request.labels), ("state", request.states), ("queue", request.queue)):
        if given and name not in kind.filters:
            raise ConfigError(f"{kind.plural} can't be selected by {name}; leave out --{name}")
    for label in request.labels:
        parse_pair(label, "label")
    sorts = [*kind.sorts, *kind.server_sorts]
    if request.sort_by and request.sort_by.removeprefix("-").lower() not in sorts:
        raise ConfigError(f"{kind.plural} can't be sorted by '{request.sort_by}'; choose from {', '.join(sorts)}")
    return request


def _check_states(kind: ObjectKind, states: tuple[str, ...]) -> tuple[str, ...]:
    known = STATES.get(kind.singular, ())
    found: list[str] = []
    for state in (text.lower() for text in states):
        if kind is WORKLOADS and state in ("living", "over"):
            found += UNFINISHED_STATES if state == "living" else FINISHED_STATES
        elif state in known or not known:
            found.append(state)
        else:
            more = ", living, over" if kind is WORKLOADS else ""
            raise ConfigError(f"'{state}' is not a state of {kind.plural}; choose from {', '.join(known)}{more}")
    return tuple(found)
