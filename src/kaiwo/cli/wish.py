"""What the person wants to see of a listing: the options every listing takes, checked against the kind.

In:    flags.   Out: a frozen Wish, or a ConfigError that names what makes no sense.
"""

from typing import Any

import click
import msgspec

from kaiwo.cli import printing
from kaiwo.cli.kinds import WORKLOADS, Kind
from kaiwo.cli.names import complete_queue
from kaiwo.cli.words import LIVING, OVER, parse_pair
from kaiwo.model.errors import ConfigError
from kaiwo.model.program import State

DEFAULT_LIMIT = 500
STATES: dict[str, tuple[str, ...]] = {
    "workload": tuple(state.value for state in State),
    "node": ("ready", "cordoned", "not-ready"),
    "gpu": ("free", "shared", "full", "unhealthy"),
}


class Wish(msgspec.Struct, frozen=True):
    """What the person wants to see of a listing."""

    output: str = "table"
    watch: bool = False
    labels: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    queue: str = ""
    sort_by: str = ""
    limit: int = DEFAULT_LIMIT  # 0: all
    no_headers: bool = False
    query: dict[str, str] = {}  # more of the server's own filters


def listing_options(command: Any) -> Any:
    """The options of every listing."""
    for option in reversed(
        (
            printing.output_option(),
            click.option("-w", "--watch", is_flag=True, help="Keep showing it as it changes; Ctrl-C ends."),
            click.option("-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only with this label."),
            click.option("--state", "states", multiple=True, metavar="STATE", help="Only in this state; or a,b."),
            click.option(
                "-q", "--queue", metavar="QUEUE", default="", shell_complete=complete_queue, help="Only in this queue."
            ),
            click.option("--sort-by", default="", metavar="COLUMN", help="Sort by this; -COLUMN turns it around."),
            click.option(
                "--limit",
                metavar="N",
                default=DEFAULT_LIMIT,
                show_default=True,
                type=click.IntRange(0),
                help="At most so many; 0: all.",
            ),
            click.option("--no-headers", is_flag=True, help="Leave the titles out."),
        )
    ):
        command = option(command)
    return command


def make_wish(kind: Kind, query: dict[str, str] | None = None, **options: Any) -> Wish:
    """Check the options against the kind; what makes no sense for it is said."""
    states = tuple(part for text in options.pop("states", ()) for part in text.split(",") if part)
    wish = Wish(states=_known_states(kind, states), query=query or {}, **options)
    for name, given in (("label", wish.labels), ("state", wish.states), ("queue", wish.queue)):
        if given and name not in kind.filters:
            raise ConfigError(f"{kind.plural} cannot be chosen by {name}; leave --{name} out")
    for label in wish.labels:
        parse_pair(label, "label")
    sorts = [*kind.sorts, *kind.server_sorts]
    if wish.sort_by and wish.sort_by.removeprefix("-").lower() not in sorts:
        raise ConfigError(f"{kind.plural} cannot be sorted by '{wish.sort_by}'; choose from {', '.join(sorts)}")
    return wish


def _known_states(kind: Kind, states: tuple[str, ...]) -> tuple[str, ...]:
    known = STATES.get(kind.singular, ())
    found: list[str] = []
    for state in (text.lower() for text in states):
        if kind is WORKLOADS and state in ("living", "over"):
            found += LIVING if state == "living" else OVER
        elif state in known or not known:
            found.append(state)
        else:
            more = ", living, over" if kind is WORKLOADS else ""
            raise ConfigError(f"'{state}' is not a state of {kind.plural}; they are {', '.join(known)}{more}")
    return tuple(found)
