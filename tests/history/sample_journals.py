"""Short journals to tell tests about."""

from collections.abc import Iterable
from pathlib import Path

from kaiwo.history import Base, Batch, Cycle, Entry, Journal, JournalReader, Setting
from kaiwo.model.events import Event, PodChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.plan import Plan, Start
from kaiwo.model.workload import Pod

SETTING = Setting("0.1.0", plugins=(("fits", "1"), ("packs", "2")))


def pod_event(index: int) -> PodChanged:
    return PodChanged(
        Pod(f"lab/train-{index}", "main-0", f"node-{index % 50}", devices=(Share("gpu-1", 1000, 196608),))
    )


def pod_events(count: int, start: int = 0) -> tuple[Event, ...]:
    return tuple(pod_event(index) for index in range(start, start + count))


def cycle(number: int, setting: Setting = SETTING, starts: int = 1) -> Cycle:
    chosen = tuple(Start(f"lab/train-{number}", f"main-{index}", "node-1") for index in range(starts))
    return Cycle.of(Plan(chosen, steps=starts), setting, number=number, now_s=10 * number, wall_ms=number, took_us=7)


def tell(journal: Journal, numbers: Iterable[int], events_each: int = 3) -> list[Entry]:
    """A base, then a batch and a cycle for each number. What an honest reader must get for the last one."""
    base = Base((WorkloadGone("lab/none"),), b"state")
    story: list[Entry] = [base]
    journal.base(base)
    for number in numbers:
        events, decided = pod_events(events_each, number), cycle(number)
        journal.batch(events)
        journal.cycle(decided)
        story += [Batch(events), decided]
    return story


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.journal"))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def check(reader: JournalReader) -> tuple[str, ...]:
    """Read every segment, and say what is lost."""
    list(reader._caught_up())
    return reader.notes
