import numpy as np
from spread_heat import SpreadHeat

from kaiwo.plugins import Gpu, Node, Request
from kaiwo.plugins.testing import Pod, Share, view_of

GPUS = tuple(Gpu(f"gpu-{number}", "MI300X", 196_608) for number in range(4))


def ranks(*busy: int) -> list[int]:
    """The ranks of four devices of which these have a tenant."""
    pods = [Pod("a/b", f"p-{at}", "n", devices=(Share(f"gpu-{at}", 1000, 1),)) for at in busy]
    view = view_of([Node("n", gpus=GPUS)], pods=pods)
    return SpreadHeat().allocation(view, Request(gpus=1), 0, np.arange(4)).tolist()


def test_on_an_idle_node_all_devices_are_equal() -> None:
    assert ranks() == [0, 0, 0, 0]


def test_neighbours_of_a_busy_device_come_after_the_others() -> None:
    assert ranks(1) == [1000, 2000, 1000, 0]


def test_a_device_between_two_busy_ones_comes_last_of_the_free_ones() -> None:
    assert ranks(0, 2) == [2000, 2000, 2000, 1000]
