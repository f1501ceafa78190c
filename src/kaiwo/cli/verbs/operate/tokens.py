"""`kaiwo tokens`: list, create, rotate or revoke the tokens of people."""

import time
from typing import Any

import click

from kaiwo.api.views.answers import Outcome, Page
from kaiwo.api.views.people import NewTokenView, TokenView
from kaiwo.cli.client.api_client import object_path
from kaiwo.cli.lists.columns import NUMBER, WIDE, table_row
from kaiwo.cli.name_completion import complete_queue
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import Column
from kaiwo.cli.verb_base import VerbGroup, connect_server, run_for_each
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.quantities import read_duration_s
from kaiwo.model.amounts import short_duration
from kaiwo.model.reservation import clock_words

ROLES = ("viewer", "user", "operator", "admin", "scraper")
NEVER = "never"
COLUMNS = (
    Column("ID", lambda t, _: t.id),
    Column("NAME", lambda t, _: t.name),
    Column("ROLE", lambda t, _: t.role),
    Column("QUEUES", lambda t, _: ", ".join(t.queues) or "-"),
    Column("STATE", lambda t, _: t.state, is_state=True),
    Column("EXPIRES", lambda t, now: _expires(t, now)),
    Column("LAST USED", lambda t, now: f"{short_duration(now - t.last_used_s)} ago" if t.last_used_s else NEVER),
    Column("CREATED", lambda t, now: f"{short_duration(now - t.created_s)} ago", False, WIDE),
    Column("BY", lambda t, _: t.created_by or "-", False, WIDE),
    Column("ROTATED", lambda t, _: str(t.rotations), NUMBER, WIDE),
)


@click.group(cls=VerbGroup, invoke_without_command=True)
@printing.output_option("table", "wide", "json", "yaml", "name")
@click.pass_context
def tokens(ctx: click.Context, output: str) -> None:
    """List the tokens of people; create, rotate or revoke them.

    A token belongs to a person and has one role. Its secret is shown once, when it is made, and only a hash of it is
    stored. The time of its last use is exact to the hour. Every change takes effect at once.

    \b
    Roles:
      viewer    reads, but not the commands and logs of others' work
      user      also submits work into the queues of the token, and changes their own
      operator  also changes nodes, reservations and everybody's work, and reads all logs
      admin     also changes queues, policies and tokens
      scraper   reads /metrics and nothing else, for Prometheus

    \b
    Examples:
      kaiwo tokens
      kaiwo tokens create ada --role user --queue lab --expires 90d
      kaiwo tokens create prometheus --role scraper --expires never
      kaiwo tokens rotate t-1f2e3d4c5b --grace 1h
      kaiwo tokens revoke t-1f2e3d4c5b
    """
    if ctx.invoked_subcommand is None:
        _print_list(output)


@tokens.command("list")
@printing.output_option("table", "wide", "json", "yaml", "name")
def list_tokens(output: str) -> None:
    """List tokens, also those that expired or were revoked in the last 90 days.

    \b
    Example:
      kaiwo tokens list -o wide
    """
    _print_list(output)


@tokens.command("create")
@click.argument("name", metavar="PERSON")
@click.option("--role", required=True, type=click.Choice(ROLES), metavar="|".join(ROLES), help="What it may do.")
@click.option(
    "--queue", "queues", multiple=True, metavar="QUEUE", shell_complete=complete_queue,
    help="Queue into which a user may submit, with those below it; '*' for all. Repeatable.",
)  # fmt: skip
@click.option("--expires", metavar="TIME", default="90d", show_default=True, help="When it ends: 30d, or never.")
@printing.output_option("table", "json", "yaml")
def create(name: str, role: str, queues: tuple[str, ...], expires: str, output: str) -> None:
    """Create a token for a person and print its secret, which cannot be shown again.

    The person sets KAIWO_TOKEN to the secret, or saves it with `kaiwo login --token`. The person's name owns the
    work that they submit.

    \b
    Examples:
      kaiwo tokens create ada --role user --queue lab --queue shared
      kaiwo tokens create grace --role viewer --expires 7d
      kaiwo tokens create prometheus --role scraper --expires never
    """
    server = connect_server()
    form = {"name": name, "role": role, "queues": list(queues), "expires_in_s": _seconds(expires, NEVER, "--expires")}
    _print_new(server.post("/tokens", form), output)


@tokens.command("rotate")
@click.argument("token_id", metavar="ID")
@click.option(
    "--grace", metavar="TIME", default="24h", show_default=True, help="How long the present secret stays good."
)
@click.option("--expires", metavar="TIME", help="When it ends, such as 30d, or never (default: as before).")
@printing.output_option("table", "json", "yaml")
def rotate(token_id: str, grace: str, expires: str | None, output: str) -> None:
    """Give a token a new secret and print it. The present one stays good for the grace period.

    Use --grace 0s for a secret that leaked: it ends at once, with its logins and open streams.

    \b
    Examples:
      kaiwo tokens rotate t-1f2e3d4c5b
      kaiwo tokens rotate t-1f2e3d4c5b --grace 0s
    """
    form: dict[str, Any] = {"grace_s": _seconds(grace, "0s", "--grace")}
    if expires is not None:
        form["expires_in_s"] = _seconds(expires, NEVER, "--expires")
    server = connect_server()
    _print_new(server.post(f"{object_path('tokens', token_id)}/rotate", form), output)


@tokens.command("revoke")
@click.argument("token_ids", nargs=-1, required=True, metavar="ID...")
def revoke(token_ids: tuple[str, ...]) -> int:
    """End tokens at once, with their logins and open streams.

    \b
    Example:
      kaiwo tokens revoke t-1f2e3d4c5b
    """
    server = connect_server()

    def revoke_one(token_id: str) -> None:
        body = server.send("DELETE", object_path("tokens", token_id))
        printing.print_outcome(body, server.decode(body, Outcome))

    return run_for_each(token_ids, revoke_one)


def _print_list(output: str) -> None:
    server = connect_server()
    body = server.get("/tokens")
    if output in ("json", "yaml"):
        printing.print_body(body, output)
        return
    items = server.decode(body, Page[TokenView]).items
    if output == "name":
        for token in items:
            click.echo(token.id)
    elif items:
        columns = [column for column in COLUMNS if output == "wide" or not column.is_wide]
        printing.print_table(columns, [table_row(columns, token, time.time()) for token in items])
    else:
        printing.hint("nobody has a token yet; create one with: kaiwo tokens create PERSON --role user --queue QUEUE")


def _print_new(body: bytes, output: str) -> None:
    if output != "table":
        printing.print_body(body, output)
        return
    made = connect_server().decode(body, NewTokenView)
    token = made.token
    expires = f"expires at {clock_words(token.expires_s)}" if token.expires_s else "never expires"
    what = f"{token.role} of {', '.join(token.queues)}" if token.queues else token.role
    printing.hint(f"token {token.id} for {token.name} ({what}) {expires}")
    if token.former_until_s:
        printing.hint(f"the secret before it is good until {clock_words(token.former_until_s)}")
    printing.hint("this is the only time that the secret is shown:")
    click.echo(made.secret)


def _expires(token: TokenView, now: float) -> str:
    if token.state == "revoked":
        return "-"
    if not token.expires_s:
        return NEVER
    left_s = token.expires_s - now
    return f"in {short_duration(left_s)}" if left_s > 0 else f"{short_duration(-left_s)} ago"


def _seconds(text: str, zero: str, option: str) -> int:
    return 0 if text == zero else read_duration_s(text, FieldPath("", option))
