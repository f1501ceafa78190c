"""What is known of the use of recurring work and which requests were adjusted, in one file of the home folder.

KAIWO_HOME/adjustments.msgpack   only its owner may read it
"""

import contextlib
import enum
import os
import time
from pathlib import Path

import msgspec

from kaiwo.advise.right_size import Resized
from kaiwo.advise.run_uses import KindUse
from kaiwo.history.record_file import set_aside
from kaiwo.model.workload import Role
from kaiwo.runtime.log import emit

FILE = "adjustments.msgpack"
KEPT = 1_000  # adjustments


class AdjustmentKind(enum.StrEnum):
    NEXT_START = "next-start"  # it starts with what the same work used before
    IN_PLACE = "in-place"  # its running pods ask for less, without being stopped
    RESTORED = "restored"  # it needed more than that: it waits again, with what its owner asked for
    IDLE_WARNING = "idle-warning"
    IDLE_SHRUNK = "idle-shrunk"  # it waits again, with what it used
    IDLE_RELEASED = "idle-released"  # it was stopped, and is held until somebody releases it


class Adjustment(msgspec.Struct, frozen=True):
    at_s: int
    workload: str
    submission: int
    user: str
    queue: str
    kind: AdjustmentKind
    reasons: tuple[Resized, ...] = ()
    asked: tuple[Role, ...] = ()  # what its owner asked for
    idle_s: int = 0
    refused: str = ""  # why the cluster did not do it; empty: it did


class SavedAdjustments(msgspec.Struct, frozen=True):
    kinds: tuple[KindUse, ...] = ()
    adjustments: tuple[Adjustment, ...] = ()
    to_shrink: dict[str, tuple[Role, ...]] = {}  # idle work that is held until it has stopped, and what it gets then


class AdjustmentFile:
    def __init__(self, home: str) -> None:
        self._path = Path(home) / FILE

    def load(self) -> SavedAdjustments:
        """Nothing, if there is none. What cannot be read is set aside: what work uses is measured again."""
        try:
            return msgspec.msgpack.decode(self._path.read_bytes(), type=SavedAdjustments)
        except (msgspec.MsgspecError, ValueError) as error:
            with contextlib.suppress(OSError):
                kept = set_aside(self._path, int(time.time()))
                emit("adjustments-damaged", level="error", error=str(error), kept=str(kept))
        except OSError:
            pass
        return SavedAdjustments()

    def save(self, saved: SavedAdjustments) -> None:
        """OSError when the disk is full; the file is as it was then."""
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        temporary.touch(mode=0o600)
        with temporary.open("wb") as file:
            file.write(msgspec.msgpack.encode(saved))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)
