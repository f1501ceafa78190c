"""What the executor has begun, on disk, so that a machine that dies in the middle is put right afterwards.

In:    an order and how far it got.   Out: the same after a restart; nothing when no change is under way.
"""

import os
from typing import Literal

import msgspec

from kaiwo.model.errors import ConfigError
from kaiwo.model.partitions import ModeChange


class Record(msgspec.Struct, frozen=True):
    """A change under way."""

    changes: tuple[ModeChange, ...]
    way: Literal["forward", "back"] = "forward"
    reason: str = ""  # why it goes back
    is_memory_asked: bool = False  # the driver was told another memory mode, and takes it when it is loaded next


def read_record(path: str) -> Record | None:
    """None when nothing is under way."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Record)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{path} says what partition change is under way and cannot be read ({error}); "
            "look at the GPUs' modes with `kaiwo discover`, then remove the file"
        ) from error


def write_record(path: str, record: Record) -> None:
    """Whole or not at all, and on the disk before the next step."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    beside = f"{path}.new"
    with open(beside, "wb") as file:
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def remove_record(path: str) -> None:
    """The change is over."""
    os.unlink(path)
