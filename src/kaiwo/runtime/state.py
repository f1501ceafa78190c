"""What the picture knows beside its events: which classes are stuck and why. A journal's base carries it."""

import msgspec

from kaiwo.model.reason import Obstacle
from kaiwo.snapshot.backlog import ClassKey
from kaiwo.snapshot.picture import Picture


class Learned(msgspec.Struct, frozen=True):
    """What earlier cycles left for the next one."""

    obstacles: tuple[tuple[ClassKey, tuple[Obstacle, ...]], ...]
    open: tuple[ClassKey, ...]
    all_open: bool
    now_s: int  # of the snapshot it goes with: who stood at the gate then


def pack_state(picture: Picture, now_s: int) -> bytes:
    """The learned state as bytes."""
    backlog = picture.backlog
    obstacles = tuple((key, found.obstacles) for key, found in sorted(backlog.by_key.items()) if found.obstacles)
    return msgspec.msgpack.encode(Learned(obstacles, tuple(sorted(backlog.open)), backlog.all_open, now_s))


def unpack_state(picture: Picture, state: bytes) -> None:
    """Give a picture that was rebuilt from events what the original had learned."""
    if not state:
        return
    learned = msgspec.msgpack.decode(state, type=Learned)
    picture.snapshot(learned.now_s)
    backlog = picture.backlog
    for key, obstacles in learned.obstacles:
        if key in backlog.by_key:
            backlog.by_key[key].obstacles = obstacles
    backlog.open = {key: backlog.by_key[key] for key in learned.open if key in backlog.by_key}
    backlog.all_open = learned.all_open
