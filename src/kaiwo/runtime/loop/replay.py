"""Rebuild a past cycle from the journal and decide it again: it must give the same plan."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

import kaiwo
from kaiwo.decide import decide
from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.placement.node_choices import NodeChoice, NodeChoices
from kaiwo.history.journal_entries import Base, Batch, Cycle, CycleHead, Entry, Setting
from kaiwo.history.journal_reader import JournalReader
from kaiwo.model.errors import NotFoundError
from kaiwo.model.network.constraint import plugin_strategy
from kaiwo.model.obstacle import Obstacle, ObstacleNumbers
from kaiwo.model.plan import Plan, encode_plan
from kaiwo.model.policy import Policy
from kaiwo.model.workload import role_of
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.registry import Registry
from kaiwo.runtime.loop.learned_state import unpack_state
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.backlog import ClassKey
from kaiwo.snapshot.cluster_state import ClusterState


class ReplayResult(msgspec.Struct, frozen=True):
    head: CycleHead
    setting: Setting
    then: Plan
    now: Plan
    is_same: bool
    entries: int  # read to get there
    nodes: int
    waiting: int
    differences: tuple[str, ...]  # in the code or the plugins
    choices: tuple[tuple[str, str, NodeChoice], ...] = ()  # by workload and pod that started: why there


def replay(home: str, cycle: int, plugins: Registry = BUILTIN) -> ReplayResult:
    reader = JournalReader(Path(home) / "journal")
    for state, entry, entries in _cycles(reader.entries_until(cycle), plugins):
        if entry.head.number == cycle:
            return _decide_again(state, entry, entries, plugins, explains=True)
    raise NotFoundError(f"cycle {cycle} is not in the journal under {home}; `kaiwo get cycles` lists what is")


def replay_range(home: str, first: int, last: int, plugins: Registry = BUILTIN) -> Iterator[ReplayResult]:
    """Every cycle from `first` to `last` that the journal has, each decided again on the state that it saw then."""
    reader = JournalReader(Path(home) / "journal")
    for end in reader.last_of_segments():
        if end < first:
            continue
        for state, entry, entries in _cycles(reader.entries_until(end), plugins):
            if entry.head.number > last:
                return
            if entry.head.number >= first:
                yield _decide_again(state, entry, entries, plugins)


def _cycles(entries: Iterator[Entry], plugins: Registry) -> Iterator[tuple[ClusterState, Cycle, int]]:
    """Each cycle with the state that it saw, and how many entries were read to get there."""
    state = ClusterState()
    for read, entry in enumerate(entries, start=1):
        match entry:
            case Base(events, packed):
                state = unpack_state(events, packed, plugins)
            case Batch(events):
                state.patch(events)
            case Cycle():
                yield state, entry, read
                _carry_out(state, entry)


def _carry_out(state: ClusterState, cycle: Cycle) -> None:
    """As it was decided then."""
    plan = cycle.decode_plan()
    state.snapshot(cycle.head.now_s)
    assumed = assume(state, plan, cycle.head.now_s)
    state.record_cycle(plan)
    state.patch(assumed)


def _decide_again(
    state: ClusterState, cycle: Cycle, entries: int, plugins: Registry, explains: bool = False
) -> ReplayResult:
    waiting = len(state.backlog)
    before = {key: found.obstacles for key, found in state.backlog.by_key.items()}
    then, differences = cycle.decode_plan(), []
    plugins = _taking_part(plugins, cycle.setting)
    known = {plugin.name for plugin in plugins.plugins}
    set_aside = [note for note in then.notes if note.code == "plugin-set-aside" and note.subject in known]
    choices = NodeChoices() if explains else None
    now = decide(state.snapshot(cycle.head.now_s), cycle.setting.policy, plugins, set_aside, choices)
    if cycle.setting.version != kaiwo.__version__:
        differences.append(f"code {cycle.setting.version} then, {kaiwo.__version__} now")
    if cycle.setting.plugins != plugins.versions:
        differences += _plugin_differences(dict(cycle.setting.plugins), dict(plugins.versions))
    return ReplayResult(
        head=cycle.head,
        setting=cycle.setting,
        then=then,
        now=now,
        is_same=encode_plan(now) == cycle.plan or _is_same_in_numbers(then, now, before),
        entries=entries,
        nodes=len(state.node_objects),
        waiting=waiting,
        differences=tuple(differences),
        choices=tuple(_choices(state, now, choices)) if choices is not None else (),
    )


def _choices(state: ClusterState, plan: Plan, choices: NodeChoices) -> Iterator[tuple[str, str, NodeChoice]]:
    for start in plan.starts:
        workload = state.workloads[start.workload]
        found = choices.of(start, state.request_of(workload, role_of(workload, start.pod)))
        if found is not None:
            yield start.workload, start.pod, found


def _taking_part(plugins: Registry, setting: Setting) -> Registry:
    """Without plugins of others that did not take part then: administrators switch them while Kaiwo runs."""
    names, own = {name for name, _ in setting.plugins}, {plugin.name for plugin in BUILTIN.plugins}
    named = _named(setting.policy)
    if names | named <= own and all(plugin.name in own for plugin in plugins.plugins):
        return plugins
    found = builtin_registry()
    found.replace_all(plugin for plugin in plugins.plugins if plugin.name in names or plugin.name in own)
    found.expect(names | named)
    return found


def _named(policy: Policy) -> set[str]:
    """The plugins that a policy names: it was served without one that was disabled, and is so again."""
    strategies = {policy.gpu_strategy, policy.replica_strategy, plugin_strategy(policy.topology_strategy)}
    return {*strategies, *policy.score_weights, *policy.disabled_plugins} - {""}


def _plugin_differences(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """A cycle can be decided again only with the plugins that took part."""
    missing = [f"plugin {name} {version} took part and is missing now" for name, version in then.items() - now.items()
               if name not in now]  # fmt: skip
    added = [f"plugin {name} {version} did not take part" for name, version in now.items() if name not in then]
    others = [f"plugin {name} was {then[name]} then, {now[name]} now" for name in then
              if name in now and then[name] != now[name]]  # fmt: skip
    return sorted(missing) + sorted(added) + sorted(others)


def _is_same_in_numbers(then: Plan, now: Plan, before: Mapping[ClassKey, tuple[Obstacle, ...]]) -> bool:
    """True if codes and numbers agree, for journals of 0.1.0: they describe obstacles in sentences, not in facts."""
    described = [*(wait.obstacles for wait in then.waits), *before.values()]
    if not any(each.detail for obstacles in described for each in obstacles):
        return False
    without_waits = [encode_plan(replace(plan, waits=())) for plan in (then, now)]
    return without_waits[0] == without_waits[1] and _new_waits(then, before) == _new_waits(now, before)


def _new_waits(
    plan: Plan, before: Mapping[ClassKey, tuple[Obstacle, ...]]
) -> list[tuple[str, str, list[ObstacleNumbers]]]:
    waits = [(wait.queue, wait.shape, [each.numbers for each in wait.obstacles]) for wait in plan.waits]
    return [each for each in waits if each[2] != [old.numbers for old in before.get(each[:2], ())]]
