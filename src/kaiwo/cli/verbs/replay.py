"""`kaiwo replay`: decide a past cycle again, from the journal, and compare."""

import click

from kaiwo.cli.verb import LocalVerb, this_place


@click.command(cls=LocalVerb)
@click.argument("cycle", type=click.IntRange(0))
def replay(cycle: int) -> int:
    """Rebuild what the scheduler saw in a past cycle, decide again, and compare the two plans byte by byte.

    It reads the journal in the home folder; Kaiwo need not run. Exit code 1 when the plans differ.

    \b
    Examples:
      kaiwo get cycles
      kaiwo replay 812
    """
    from kaiwo.runtime.replay import replay as decide_again

    result = decide_again(this_place().home_path, cycle)
    click.echo(str(result))
    return 0
