"""`kaiwo backup` and `kaiwo restore`: copy the state of the Kaiwo on this machine, and bring it back."""

from pathlib import Path

import click

from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import LocalVerb, reason_option, server_location
from kaiwo.model.amounts import count
from kaiwo.model.errors import NotFoundError


@click.command(cls=LocalVerb)
@click.argument("file", required=False, metavar="[FILE]", type=click.Path(dir_okay=False))
def backup(file: str | None) -> None:
    """Copy Kaiwo's state to a file, also while it runs.

    Without FILE, the copy goes to KAIWO_HOME/backups. A running Kaiwo makes such a copy every ten minutes and keeps the
    last three. The copy has the queues, the workloads and their records, the policy, the tokens of people (hashed),
    alerts and silences; but no logs, no history (series.db, past.db, journal, audit), and not the key of secret values.

    \b
    Examples:
      kaiwo backup
      kaiwo backup /mnt/safe/kaiwo-state.db
    """
    from kaiwo.clusters.local.state_file import back_up, back_up_in, is_blank
    from kaiwo.clusters.secret_values import KEY_FILE

    home = Path(server_location().home_path)
    if is_blank(home / "state.db"):
        raise NotFoundError(f"{home / 'state.db'} has no state to back up; is this the right folder? See --home")
    if file:
        back_up(home / "state.db", Path(file).absolute())
    target = Path(file).absolute() if file else back_up_in(home)
    click.echo(f"{target} has the state of {home}")
    if (home / KEY_FILE).exists():
        printing.hint(f"the key of secret values is not in it: keep {home / KEY_FILE} apart from the backup")


@click.command(cls=LocalVerb)
@click.argument("file", required=False, metavar="[FILE]", type=click.Path(dir_okay=False))
@reason_option()
def restore(file: str | None, reason: str) -> None:
    """Repair or replace Kaiwo's state. Stop Kaiwo first; running workloads continue.

    Without FILE, the latest backup is taken, and everything that can still be read from the present state replaces its
    older rows; the policy, the tokens and the alerts come back where their files are missing. With FILE, all is that of
    the file alone, so tokens that were removed since are valid again. What is replaced is kept beside it. The next
    `kaiwo up` then reads back runs that began or ended after the backup from their folders.

    \b
    Examples:
      kaiwo restore
      kaiwo restore /mnt/safe/kaiwo-state.db
    """
    from kaiwo.clusters.local.home_folder import Home
    from kaiwo.clusters.local.state_file import restore as restore_state

    home = Home(Path(server_location().home_path))
    try:
        done = restore_state(home.path, Path(file).absolute() if file else None)
        _record_restore(home.path, str(done.backup or "no backup"), reason)
    finally:
        home.close()
    sources = [str(done.backup)] if done.backup is not None else []
    if done.saved_rows:
        sources.append(f"{count(done.saved_rows, 'row')} of the state before")
    found = " and ".join(sources) or "nothing: there is no backup, and no row could be read"
    click.echo(f"{home.state} was restored from {found}")
    if done.files:
        click.echo(f"from the backup came back: {', '.join(done.files)}")
    if done.set_aside is not None:
        click.echo(f"the state before is in {done.set_aside}")
    click.echo("start Kaiwo again: kaiwo up")


def _record_restore(home: Path, source: str, reason: str) -> None:
    from kaiwo.api.security.process_identity import process_owner
    from kaiwo.history.audit import AuditEntry, AuditLog
    from kaiwo.history.audit.audit_files import FOLDER

    log = AuditLog(home / FOLDER)
    log.record(
        AuditEntry(
            action="restore", object="state", person=process_owner(), credential="owner of the home folder",
            new={"from": source}, reason=reason,
        )
    )  # fmt: skip
    log.close()
