"""`kaiwo replay`: decide a past cycle again, from the journal, and compare. Works without a running Kaiwo."""

from typing import TYPE_CHECKING, Any

import click

from kaiwo.cli import printing
from kaiwo.cli.verb import LocalVerb, this_place
from kaiwo.cli.words import count

if TYPE_CHECKING:
    from kaiwo.model.plan import Plan
    from kaiwo.runtime.replay import ReplayResult

MOST_LINES = 20


@click.command(cls=LocalVerb)
@click.argument("cycle", type=click.IntRange(0))
@printing.output_option("table", "json", "yaml")
def replay(cycle: int, output: str) -> int:
    """Rebuild what the scheduler saw in a past cycle, decide again, and compare the two plans byte by byte.

    It reads the journal in the home folder; Kaiwo need not run. Exit code 1 when the plans differ.

    \b
    Examples:
      kaiwo get cycles
      kaiwo replay 812
    """
    from kaiwo.runtime.replay import replay as decide_again

    result = decide_again(this_place().home_path, cycle)
    if output == "table":
        _print(result)
    else:
        printing.print_data(_facts(result), output)
    return 0 if result.is_same else 1


def _print(result: "ReplayResult") -> None:
    from kaiwo.cli.plan_words import difference_lines, plan_lines

    verdict = "the same plan, byte for byte" if result.is_same else "ANOTHER plan than it gave then"
    click.echo(printing.bold(f"cycle {result.head.number}, decided again, gives {verdict}"))
    for difference in result.differences:
        click.echo(f"  {difference}")
    saw = f"{count(result.nodes, 'node')}, {count(result.waiting, 'waiting workload')}"
    click.echo(f"  saw      {saw} (from {count(result.entries, 'record')} of the journal)")
    click.echo(f"  decided  {_summary(result.then)}")
    if result.is_same:
        _print_lines(plan_lines(result.then), "    ")
        return
    click.echo(f"  now      {_summary(result.now)}")
    only_then, only_now = difference_lines(result.then, result.now)
    _print_lines(only_then, "  only then: ")
    _print_lines(only_now, "  only now:  ")
    if not only_then and not only_now:
        click.echo("  the values are equal; the journal holds them in another form than this version writes")


def _summary(plan: "Plan") -> str:
    waits = f"{count(len(plan.waits), 'kind')} of waiting work with new reasons"
    return f"{count(len(plan.starts), 'start')}, {count(len(plan.evictions), 'eviction')}, {waits}"


def _print_lines(lines: list[str], indent: str) -> None:
    for line in lines[:MOST_LINES]:
        click.echo(indent + line)
    if len(lines) > MOST_LINES:
        click.echo(f"{indent}and {len(lines) - MOST_LINES} more; -o json shows all")


def _facts(result: "ReplayResult") -> dict[str, Any]:
    import msgspec

    return {
        "cycle": result.head.number,
        "is_same": result.is_same,
        "differences": list(result.differences),
        "nodes": result.nodes,
        "waiting": result.waiting,
        "entries": result.entries,
        "version": result.setting.version,
        "then": msgspec.to_builtins(result.then),
        "now": msgspec.to_builtins(result.now),
    }
