"""Devices of one pod stand together: on one IO die, on one GPU, behind good links."""

from kaiwo.model.events import NodeChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import partition_index, partition_milli
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from tests.gpus.device_links import hives
from tests.gpus.shared_dies import neighbours
from tests.worlds import World

PART_MIB = 24_576


def cut_node(name: str = "n", gpus: int = 8, missing: tuple[tuple[int, int], ...] = ()) -> NodeChanged:
    """MI300X in CPX, as discovery shows them; some partitions may not show."""
    devices = tuple(
        Gpu(f"gpu-{gpu}-p{part}", "MI300X", PART_MIB, True, "", f"gpu-{gpu}", "CPX+NPS1", partition_milli(part, 8))
        for gpu in range(gpus)
        for part in range(8)
        if (gpu, part) not in missing
    )
    return NodeChanged(Node(name, cpu_milli=10**6, memory_mib=10**6, pods=200, gpus=devices))


def parts(world: World, name: str) -> list[tuple[str, int]]:
    found = [device.partition("/")[2] for device in world.devices_of(name)]
    return sorted((device.rpartition("-p")[0], partition_index(device)) for device in found)


def ask(world: World, name: str, count: int) -> list[tuple[str, int]]:
    world.submit(name, request=Request(gpus=count, partition="CPX"))
    world.settle()
    return parts(world, name)


def test_two_partitions_are_neighbours_on_one_io_die() -> None:
    world = World(nodes=0).tell(cut_node())
    for number in range(10):
        (first, one), (second, two) = ask(world, f"w{number}", 2)
        assert first == second
        assert neighbours("MI300X", "CPX", one) == (two,)


def test_a_single_partition_goes_where_a_die_is_begun() -> None:
    world = World(nodes=0).tell(cut_node(gpus=2))
    assert ask(world, "a", 1) == [("gpu-0", 0)]
    assert ask(world, "b", 1) == [("gpu-0", 1)]
    assert ask(world, "pair", 2) == [("gpu-0", 2), ("gpu-0", 3)]
    assert ask(world, "c", 3) == [("gpu-0", 4), ("gpu-0", 5), ("gpu-0", 6)]
    assert ask(world, "d", 2) == [("gpu-1", 0), ("gpu-1", 1)]  # a pair of one die, not what is left of another
    assert ask(world, "e", 1) == [("gpu-0", 7)]


def test_a_gpu_is_filled_before_the_next_is_begun_and_more_than_one_gpu_only_when_it_must() -> None:
    world = World(nodes=0).tell(cut_node(gpus=3))
    assert {gpu for gpu, _ in ask(world, "a", 6)} == {"gpu-0"}
    assert {gpu for gpu, _ in ask(world, "b", 4)} == {"gpu-1"}
    assert ask(world, "c", 2) == [("gpu-0", 6), ("gpu-0", 7)]
    assert {gpu for gpu, _ in ask(world, "d", 10)} == {"gpu-1", "gpu-2"}


def test_of_63_devices_63_are_given_and_a_lone_half_of_a_die_is_no_pair() -> None:
    world = World(nodes=0).tell(cut_node(missing=((7, 7),)))
    for number in range(31):
        (_, one), (_, two) = ask(world, f"w{number:02d}", 2)
        assert two == one + 1
        assert one % 2 == 0
    assert ask(world, "more", 2) == []
    assert ask(world, "last", 1) == [("gpu-7", 6)]


def test_partitions_whole_gpus_and_shares_keep_out_of_each_others_way() -> None:
    world = World(nodes=1, gpus_per_node=2).tell(cut_node(gpus=1))
    world.submit("whole", gpus_each=1).submit("half", fraction_milli=100).submit("memory", memory_mib=2_000)
    world.settle()
    assert world.nodes_of("whole") == world.nodes_of("half") == world.nodes_of("memory") == ["node-0"]
    assert ask(world, "part", 1) == [("gpu-0", 0)]
    assert ask(world, "other", 9) == []
    world.submit("exact", request=Request(gpus=1, partition="CPX+NPS1"))
    world.submit("wrong", request=Request(gpus=1, partition="CPX+NPS4"))
    world.submit("dpx", request=Request(gpus=1, partition="DPX"))
    world.settle()
    assert world.is_running("exact")
    assert not world.is_running("wrong")
    assert not world.is_running("dpx")
    assert world.why("dpx")
    assert world.is_within_capacity()


def test_a_queue_pays_for_partitions_in_parts_of_physical_gpus() -> None:
    world = World(nodes=0).tell(cut_node(gpus=1)).queue("small", gpu_limit=250)
    for number in range(3):
        world.submit(f"w{number}", request=Request(gpus=1, partition="CPX"), queue="small")
    world.settle()
    assert [world.is_running(f"w{number}") for number in range(3)] == [True, True, False]
    assert world.state.used["small"][0] == 250


def test_queues_take_turns_for_partitions() -> None:
    world = World(nodes=0).tell(cut_node(gpus=2)).queue("red").queue("blue")
    for number in range(16):
        for queue in ("red", "blue"):
            world.submit(f"{queue}-{number}", request=Request(gpus=1, partition="CPX"), queue=queue)
    world.settle()
    assert world.state.used["red"][0] == world.state.used["blue"][0] == 1000


def test_a_pod_of_four_gpus_gets_one_hive_from_decide() -> None:
    world = World(nodes=0)
    gpus = tuple(Gpu(f"gpu-{at}", "MI210", 65_536) for at in range(8))
    world.tell(NodeChanged(Node("n", cpu_milli=10**6, memory_mib=10**6, gpus=gpus, wiring=hives(4))))
    world.submit("one", gpus_each=1).settle()
    world.submit("four", gpus_each=4).settle()
    assert world.devices_of("four") == [f"n/gpu-{at}" for at in range(4, 8)]
