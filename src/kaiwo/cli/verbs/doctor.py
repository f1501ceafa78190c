"""`kaiwo doctor`: check what Kaiwo stands on, and say what to mend."""

import click
import msgspec

from kaiwo.cli import printing
from kaiwo.cli.checks import Finding, examine
from kaiwo.cli.verb import Verb, this_place


@click.command(cls=Verb)
@printing.output_option("table", "json", "yaml")
def doctor(output: str) -> int:
    """Check this installation: Python, the home folder, the server, the token, disk, clock, GPUs and the web page.

    Exit code 1 when a check fails; a warning does not count.

    \b
    Example:
      kaiwo doctor
    """
    findings = examine(this_place())
    if output != "table":
        printing.print_data([msgspec.to_builtins(finding) for finding in findings], output)
    else:
        _print(findings)
    return 1 if any(finding.result == "fail" for finding in findings) else 0


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        result = printing.paint_state(finding.result) + " " * (4 - len(finding.result))
        click.echo(f"{result}  {finding.check:<8}  {finding.fact}")
        if finding.todo:
            click.echo(printing.wrap(f"-> {finding.todo}", " " * 16))
    bad = sum(finding.result != "ok" for finding in findings)
    click.echo("\n" + ("all is well" if not bad else f"{bad} of {len(findings)} checks ask for your attention"))
