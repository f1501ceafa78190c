"""Which partitions of a GPU share an IO die."""

from kaiwo.model.gpus.partition_modes import io_dies, partition_count


def neighbours(model: str, compute: str, index: int) -> tuple[int, ...]:
    """The other partitions on the same IO die: of an MI300X in CPX, 2k and 2k+1 share one."""
    mine = set(io_dies(model, compute, index))
    return tuple(
        other
        for other in range(partition_count(model, compute))
        if other != index and mine.intersection(io_dies(model, compute, other))
    )
