"""Decide every cycle of a journal again, from the first to the last, and count those whose plan is the same.

In:    the home folder of a Kaiwo, or of a simulated run.   Out: how many cycles were the same, and the first others.
A journal that another version wrote is refused with a sentence: other code may well decide otherwise.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

import kaiwo
from kaiwo.decide.cycle import BUILTIN
from kaiwo.history.journal_reader import JournalReader
from kaiwo.model.errors import ConfigError
from kaiwo.plugins.registry import Registry
from kaiwo.runtime.loop.replay import ReplayResult, replay_range

MOST_NAMED = 20


class JournalFigures(msgspec.Struct, frozen=True):
    journal: str
    first: int
    last: int
    cycles: int
    same: int
    starts: int
    evictions: int
    different: tuple[int, ...]  # the first cycles whose plans differ
    notes: tuple[str, ...]  # what is lost in the journal

    @property
    def is_same(self) -> bool:
        return self.same == self.cycles


def replay_journal(
    home: Path, plugins: Registry = BUILTIN, report: Callable[[float], None] = lambda _: None
) -> JournalFigures:
    path = home / "journal"
    if not path.is_dir():
        raise ConfigError(f"there is no journal at {path}; name the home folder of a Kaiwo, or of a simulated run")
    reader = JournalReader(path)
    first, last = reader.oldest, reader.newest
    if not last:
        raise ConfigError("; ".join([f"{path} has no cycles", *reader.notes]))
    cycles = starts = evictions = 0
    different = list[int]()
    for result in replay_range(str(home), first, last, plugins):
        _check_comparable(result, path, plugins)
        cycles += 1
        starts, evictions = starts + result.head.starts, evictions + result.head.evictions
        if not result.is_same:
            different.append(result.head.number)
        report((result.head.number - first + 1) / (last - first + 1))
    return JournalFigures(
        str(path), first, last, cycles, cycles - len(different), starts, evictions, tuple(different[:MOST_NAMED]),
        reader.notes,
    )  # fmt: skip


def _check_comparable(result: ReplayResult, path: Path, plugins: Registry) -> None:
    number, setting = result.head.number, result.setting
    if setting.version != kaiwo.__version__:
        raise ConfigError(
            f"{path}, cycle {number}: it was decided by Kaiwo {setting.version}, and this is {kaiwo.__version__}; "
            "replay the journal with that version"
        )
    missing = sorted({name for name, _ in setting.plugins} - {plugin.name for plugin in plugins.plugins})
    if missing:
        raise ConfigError(
            f"{path}, cycle {number}: the plugin {missing[0]} took part, and it is not here; decide single cycles "
            "again with `kaiwo replay --plugins FILE`"
        )
