"""`kaiwo audit`: show who changed what, and check that nobody has changed the records since."""

import datetime
import time
from pathlib import Path

import click

from kaiwo.api.views.audit import AuditPageView, AuditRecordView
from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.lists.columns import NUMBER, WIDE, table_row
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import Column
from kaiwo.cli.verb_base import LocalVerb, VerbGroup, connect_server, server_location
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.quantities import read_duration_s
from kaiwo.model.amounts import count
from kaiwo.model.errors import ConfigError, NotFoundError

MAX_CHANGE = 80  # characters of old and new values in a table
FOLLOW_S = 1.0
PAGE = 500


def _change(record: AuditRecordView, _: float) -> str:
    if not record.old and not record.new:
        return ""
    old, new = (
        text if len(text) <= MAX_CHANGE else text[: MAX_CHANGE - 3] + "..." for text in (record.old, record.new)
    )
    return f"{old or '-'} > {new or '-'}"


COLUMNS = (
    Column("N", lambda r, _: str(r.n), NUMBER, WIDE),
    Column("TIME", lambda r, _: r.at[:19].replace("T", " ")),
    Column("PERSON", lambda r, _: r.person or "-"),
    Column("CREDENTIAL", lambda r, _: r.credential or "-", False, WIDE),
    Column("ACTION", lambda r, _: r.action),
    Column("OBJECT", lambda r, _: r.object or "-"),
    Column("OUTCOME", lambda r, _: r.outcome, is_state=True),
    Column("OLD > NEW", _change, False, WIDE),
    Column("REASON", lambda r, _: r.reason or r.detail, is_prose=True),
)


@click.group(cls=VerbGroup, invoke_without_command=True)
@click.option("--person", metavar="NAME", default="", help="Only what this person did.")
@click.option("--object", "target", metavar="OBJECT", default="", help="Only this object, or objects of this kind.")
@click.option("--action", metavar="ACTION", default="", help="Only this action, such as drain.")
@click.option("--since", metavar="TIME", default="", help="Only since then: 2h, 7d, or 2026-01-31T18:00:00Z.")
@click.option("-n", "--limit", type=click.IntRange(1), default=100, show_default=True, help="At most this many.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new records as they come.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@printing.output_option("table", "wide")
@click.pass_context
def audit(
    ctx: click.Context, person: str, target: str, action: str, since: str, limit: int, follow: bool, as_json: bool,
    output: str,
) -> None:  # fmt: skip
    """Show who changed what, when, why, and how it ended. Operators and admins may read it.

    Everything that changes something is recorded: what people do through the command, the API and the page, and what
    the scheduler does by itself. OBJECT is a kind and a name, such as node/node-3 or workload/default/train; -o wide
    also shows the old and the new value. Give a reason for your own changes with --reason.

    Every record holds the hash of the one before. `kaiwo audit verify` checks that none was changed or removed.

    \b
    Examples:
      kaiwo audit
      kaiwo audit --object node/node-3 --since 7d -o wide
      kaiwo audit --person ada --action cancel --json
      kaiwo audit --follow
    """
    if ctx.invoked_subcommand is not None:
        return
    server = connect_server()
    query = {"person": person, "object": target, "action": action, "since": _since(since) if since else ""}
    chosen: dict[str, str | int] = {name: value for name, value in query.items() if value}
    records, newest = _fetch(server, chosen, limit)
    _print(records, as_json, output)
    while follow:
        time.sleep(FOLLOW_S)
        records, newest = _fetch(server, {**chosen, "newer_than": newest}, 10**6, newest)
        _print(records, as_json, output, is_more=True)


def _fetch(
    server: ApiClient, query: dict[str, str | int], limit: int, newest: int = 0
) -> tuple[list[AuditRecordView], int]:
    """The records, the oldest first, and the number of the newest record of all."""
    found, before = list[AuditRecordView](), 0
    while len(found) < limit:
        asked = {**query, "limit": min(PAGE, limit - len(found)), **({"before": before} if before else {})}
        page = server.decode(server.get("/audit", asked), AuditPageView)
        newest = max(newest, page.count) if not before else newest
        found += page.items
        before = page.next
        if not before:
            break
    return found[::-1], newest


def _print(records: list[AuditRecordView], as_json: bool, output: str, is_more: bool = False) -> None:
    if as_json:
        for record in records:
            printing.print_document(record, "json")
        return
    columns = [column for column in COLUMNS if output == "wide" or not column.is_wide]
    if records:
        printing.print_table(columns, [table_row(columns, record, 0) for record in records])
    elif not is_more:
        printing.hint("no record matches; leave out a filter, or look further back with --since")


def _since(text: str) -> str:
    """A time as the server takes it: `2h` means two hours ago."""
    if text[:4].isdigit() and "-" in text:
        return text
    ago = datetime.timedelta(seconds=read_duration_s(text, FieldPath("", "--since")))
    return (datetime.datetime.now(datetime.UTC) - ago).isoformat(timespec="milliseconds")


@audit.command("head", cls=LocalVerb)
def head() -> None:
    """Print the number and the hash of the last record.

    Write it down where Kaiwo cannot write: on paper, in a ticket, on another machine. Whoever may write all files of
    this machine can make a new chain of records; then no record has this hash any more, and
    `kaiwo audit verify --head HASH` says so.

    \b
    Example:
      kaiwo audit head
    """
    from kaiwo.history.audit.audit_files import read_head

    folder = _folder()
    found = read_head(folder)
    if found is None:
        raise ConfigError(f"{folder / 'head'} is missing or damaged; check the records with: kaiwo audit verify")
    click.echo(f"{found.count} {found.hash}")


@audit.command("verify", cls=LocalVerb)
@click.option("--head", "expected", metavar="HASH", default="", help="This hash, printed earlier, must be among them.")
@printing.output_option("table", "json", "yaml")
def verify(expected: str, output: str) -> int:
    """Check that no record was changed, removed, moved or inserted. Exits with 1 if one was.

    It reads the files in the home folder, also while Kaiwo runs, and names the file and the line of each finding.

    \b
    Examples:
      kaiwo audit verify
      kaiwo audit verify --head 9f3c...
    """
    import msgspec

    from kaiwo.history.audit.verify_audit import verify_audit

    report = verify_audit(_folder(), expected.strip().rpartition(" ")[2])
    if output != "table":
        printing.print_data(msgspec.to_builtins(report), output)
        return 1 if report.findings else 0
    for note in report.notes:
        printing.hint(f"note: {note}")
    for finding in report.findings:
        click.echo(f"{finding.kind.value.upper()}  {finding}")
    if report.findings:
        click.echo(f"the audit in {_folder()} was tampered with: {count(len(report.findings), 'finding')}")
        return 1
    click.echo(f"{count(report.records, 'record')} in order, from number {report.first} to {report.last}")
    click.echo(f"head {report.hash}")
    return 0


def _folder() -> Path:
    from kaiwo.history.audit.audit_files import FOLDER

    folder = Path(server_location().home_path) / FOLDER
    if not folder.is_dir():
        raise NotFoundError(f"there is no audit in {folder}; is this the right home folder? See --home")
    return folder
