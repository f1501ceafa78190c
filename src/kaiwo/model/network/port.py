"""A network port of a node, as its agent measures it."""

import msgspec


class NetworkPort(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    device: str  # `mlx5_0`
    number: int = 1  # of the device's ports
    is_up: bool = True
    mb_s: int = 0  # its rate, in one direction; 0: not known
    used_mb_s: int = -1  # current traffic, in the busier direction; -1: not measured yet
    was_up: bool = True  # at some time since its agent was first heard: an unused port is no failure


def has_same_links(one: tuple[NetworkPort, ...], other: tuple[NetworkPort, ...]) -> bool:
    """Only the traffic differs, if anything does."""
    if len(one) != len(other):
        return False
    return all(
        (a.device, a.number, a.is_up, a.mb_s, a.was_up) == (b.device, b.number, b.is_up, b.mb_s, b.was_up)
        for a, b in zip(one, other, strict=True)
    )
