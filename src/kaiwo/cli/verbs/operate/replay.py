"""`kaiwo replay`: decide a past cycle again from the journal, and compare the plans. It needs no running Kaiwo."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import short_name
from kaiwo.cli.verb_base import LocalVerb, server_location
from kaiwo.model.amounts import count, thousandths
from kaiwo.model.plan import Eviction, Plan, Start, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kaiwo.runtime.loop.replay import ReplayResult

MAX_LINES = 20


def plan_lines(plan: Plan) -> list[str]:
    return [_describe(each) for each in (*plan.starts, *plan.evictions, *plan.waits)]


def difference_lines(then: Plan, now: Plan) -> tuple[list[str], list[str]]:
    """What only the first plan contains, and what only the second does, over every field."""
    only_then, only_now = list[str](), list[str]()
    for name in Plan.__struct_fields__:
        before, after = getattr(then, name), getattr(now, name)
        if before == after:
            continue
        gone, new = _only_in_one(before, after) if isinstance(before, tuple) else ({}, {})
        if gone or new:
            only_then += _describe_all(name, gone, new)
            only_now += _describe_all(name, new, gone)
        else:  # a number or text, or the same values in another order
            only_then.append(f"{name} {_json(before)}")
            only_now.append(f"{name} {_json(after)}")
    return only_then, only_now


def _only_in_one(before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    old, new = ({_json(each): each for each in values} for values in (before, after))
    gone = {key: each for key, each in old.items() if key not in new}
    return gone, {key: each for key, each in new.items() if key not in old}


def _describe_all(field: str, ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Short descriptions; JSON where both plans would read the same."""
    ambiguous = {"", *(_describe(each) for each in theirs.values())}
    texts = {key: _describe(each) for key, each in ours.items()}
    return [f"{field} {key}" if text in ambiguous else text for key, text in texts.items()]


def _describe(item: Any) -> str:
    match item:
        case Start():
            devices = ", ".join(d.gpu if d.milli == 1000 else f"{d.gpu} ({thousandths(d.milli)})" for d in item.devices)
            where = f"{item.node}: {devices}" if devices else item.node
            return f"start {short_name(item.workload)}/{item.pod} on {where}"
        case Eviction():
            cause = item.cause + (f" for {short_name(item.beneficiary)}" if item.beneficiary else "")
            return f"evict {short_name(item.workload)}/{item.pod} ({cause})"
        case Wait():
            return f"{item.queue}: {', '.join(each.reason for each in item.obstacles)}"
    return ""


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@click.command(cls=LocalVerb)
@click.argument("cycle", metavar="[CYCLE[-LAST]]", default="")
@click.option("--all", "is_all", is_flag=True, help="Decide every cycle of the journal again.")
@click.option("--scores", is_flag=True, help="Show why each node was chosen: every term of its score.")
@click.option("--plugins", metavar="FILE", default="", help="File that allowed third-party plugins, as for kaiwo up.")
@printing.output_option("table", "json", "yaml")
def replay(cycle: str, is_all: bool, scores: bool, plugins: str, output: str) -> int:
    """Rebuild the input of a past cycle, decide again, and compare the two plans byte by byte.

    With CYCLE-LAST or --all, every cycle of the range is decided again on the state that it saw, and those that differ
    are listed. It reads the journal in the home folder and needs no running Kaiwo. Exits with 1 if a plan differs. A
    cycle in which third-party plugins took part can be decided again only with them: give the same --plugins file.

    \b
    Examples:
      kaiwo get cycles
      kaiwo replay 812
      kaiwo replay 812 --scores
      kaiwo replay 800-900
      kaiwo replay --all
    """
    from kaiwo.runtime.loop.replay import replay as decide_again
    from kaiwo.runtime.loop.replay import replay_range
    from kaiwo.runtime.plugin_worker.plugin_set import PluginSet

    first, last = (0, 2**62) if is_all else _range(cycle)
    home = server_location().home_path
    loaded = PluginSet(home, plugins)
    loaded.load_on_thread()
    try:
        if first != last:
            return _replay_many(replay_range(home, first, last, loaded.registry), output)
        result = decide_again(home, first, loaded.registry)
    finally:
        loaded.close()
    if output == "table":
        _print(result)
        if scores:
            _print_choices(result)
    else:
        printing.print_data(_result_data(result), output)
    return 0 if result.is_same else 1


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or len(text) > 40 or int(last or first) < int(first):
        raise click.UsageError(f"give a cycle such as 812, a range such as 800-900, or --all; not {text[:40]!r}")
    return int(first), int(last or first)


def _replay_many(results: "Iterator[ReplayResult]", output: str) -> int:
    """One line, and one for each cycle that is decided differently."""
    cycles, others = 0, list["ReplayResult"]()
    for result in results:
        cycles += 1
        if not result.is_same:
            others.append(result)
    if output != "table":
        printing.print_data({"cycles": cycles, "different": [each.head.number for each in others]}, output)
    elif not cycles:
        click.echo("the journal has none of these cycles; `kaiwo get cycles` lists what it has")
    elif not others:
        click.echo(printing.bold(f"{count(cycles, 'cycle')}, decided again: the same plans, byte for byte"))
    else:
        click.echo(printing.bold(f"{len(others)} of {count(cycles, 'cycle')} give a DIFFERENT plan"))
        _print_lines([f"kaiwo replay {each.head.number}" for each in others], "  ")
    return 1 if others or not cycles else 0


def _print(result: "ReplayResult") -> None:
    verdict = "the same plan, byte for byte" if result.is_same else "a DIFFERENT plan"
    click.echo(printing.bold(f"cycle {result.head.number}, decided again, gives {verdict}"))
    for difference in result.differences:
        click.echo(f"  {difference}")
    saw = f"{count(result.nodes, 'node')}, {count(result.waiting, 'waiting workload')}"
    _print_row("saw", f"{saw} (from {count(result.entries, 'record')} in the journal)")
    _print_row("decided", _summary(result.then))
    if result.is_same:
        _print_lines(plan_lines(result.then), "    ")
        return
    _print_row("now", _summary(result.now))
    only_then, only_now = difference_lines(result.then, result.now)
    _print_lines(only_then, "  only then: ")
    _print_lines(only_now, "  only now:  ")
    if not only_then and not only_now:
        click.echo("  the values are equal; the journal encodes them differently from this version")


def _print_choices(result: "ReplayResult") -> None:
    from kaiwo import explain

    for workload, pod, choice in result.choices[:MAX_LINES]:
        where = f"{choice.chosen.node} of {count(choice.fits, 'node')} with room"
        how = ", inside the domain of the network that was chosen first" if choice.by_domain else ""
        click.echo(printing.bold(f"\n{short_name(workload)}/{pod} on {where}{how}"))
        for scored in (choice.chosen, *choice.others):
            click.echo(printing.wrap(explain.score_words(scored), f"  {scored.node}  ", "    "))
    if len(result.choices) > MAX_LINES:
        click.echo(f"and {len(result.choices) - MAX_LINES} more; -o json shows all")
    kept = len(result.now.starts) - len(result.choices)
    if kept:
        click.echo(f"\n{count(kept, 'start')} on a place that was kept before: no node was chosen in this cycle")


def _print_row(title: str, text: str) -> None:
    click.echo(printing.wrap(text, f"  {title:<9}", " " * 11))


def _summary(plan: Plan) -> str:
    waits = f"{count(len(plan.waits), 'group')} of waiting workloads with new reasons"
    return f"{count(len(plan.starts), 'start')}, {count(len(plan.evictions), 'eviction')}, {waits}"


def _print_lines(lines: list[str], indent: str) -> None:
    for line in lines[:MAX_LINES]:
        click.echo(indent + line)
    if len(lines) > MAX_LINES:
        click.echo(f"{indent}and {len(lines) - MAX_LINES} more; -o json shows all")


def _result_data(result: "ReplayResult") -> dict[str, Any]:
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
        "choices": [
            {"workload": workload, "pod": pod, **msgspec.to_builtins(choice)}
            for workload, pod, choice in result.choices
        ],
    }
