"""Past use, kept over time and over restarts: who used more than its part lately gets less of the rest for a while.

In:    what the queues use now, looked at every few seconds.   Out: a word to the picture when it has moved.
Between two looks a queue is taken to have used what it uses at the second. Kept in a file; time during which nobody
looked counts as unused.
"""

import contextlib
import os
from pathlib import Path

import msgspec
import numpy as np

from kaiwo.model.event import PastUseTold
from kaiwo.model.policy import Policy
from kaiwo.queues.usage import ONE, Usage, advance
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.queues import RESOURCES

LOOK_S = 10
TELL_S = 60  # every word lets everybody who waits be tried anew
WORTH_TELLING = ONE // 1000  # a thousandth of the cluster


class Kept(msgspec.Struct):
    """What the file holds."""

    at_s: int = 0
    parts: dict[str, tuple[int, ...]] = {}  # by queue, in 1 / (ONE * ONE)


class PastUse:
    """One cluster's memory."""

    def __init__(self, path: Path, half_life_s: int, strength_milli: int) -> None:
        self._path, self._half_life_s, self._strength_milli = path, half_life_s, strength_milli
        self._kept = _read(path)
        self._told: PastUseTold | None = None
        self._told_s = self._saved_s = 0

    @classmethod
    def of(cls, policy: Policy, home: str) -> "PastUse | None":
        """None when the policy does not count it."""
        if not policy.past_use_half_life_s or not policy.past_use_strength_milli:
            return None
        return cls(Path(home) / "past-use.json", policy.past_use_half_life_s, policy.past_use_strength_milli)

    def look(self, picture: Picture, now_s: int) -> PastUseTold | None:
        """Count the time since the last look. The picture must stand still and be tidy."""
        kept = self._kept
        elapsed_s = now_s - kept.at_s
        if self._told is not None and elapsed_s < LOOK_S:
            return None
        queues = picture.queues
        nothing = (0,) * len(RESOURCES)
        before = Usage(_array([kept.parts.get(name, nothing) for name in queues.names]))
        # At the first look nobody knows who used what since the file was written.
        used = queues.used if self._told is not None else np.zeros_like(queues.used)
        if kept.at_s:
            before = advance(before, used, picture.nodes.totals(), max(0, elapsed_s), self._half_life_s)
        parts = zip(queues.names, before.part.tolist(), strict=True)
        self._kept = Kept(now_s, {name: tuple(part) for name, part in parts if any(part)})
        if now_s - self._saved_s >= TELL_S:
            self._saved_s = now_s
            self._save()
        told = PastUseTold(_by_name(queues.names, before.parts), self._strength_milli)
        if self._told is not None and (now_s - self._told_s < TELL_S or not _differ(told, self._told)):
            return None
        self._told, self._told_s = told, now_s
        return told

    def _save(self) -> None:
        """Whole or not at all. A full disk costs what is remembered over the next restart, and nothing else."""
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            temporary.write_bytes(msgspec.json.encode(self._kept))
            os.replace(temporary, self._path)


def _read(path: Path) -> Kept:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError):
        return Kept()


def _array(rows: list[tuple[int, ...]]) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
    return np.array(rows, np.int64).reshape(len(rows), len(RESOURCES))


def _by_name(names: list[str], parts: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> dict[str, tuple[int, ...]]:
    return {name: tuple(part) for name, part in zip(names, parts.tolist(), strict=True) if any(part)}


def _differ(one: PastUseTold, other: PastUseTold) -> bool:
    nothing = (0,) * len(RESOURCES)
    return any(
        abs(a - b) >= WORTH_TELLING
        for name in {*one.parts, *other.parts}
        for a, b in zip(one.parts.get(name, nothing), other.parts.get(name, nothing), strict=True)
    )
