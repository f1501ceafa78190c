"""Taking turns on a GPU, and when there are too many for it.

In:    how many processes and queues are on one GPU.   Out: a word when it is oversubscribed.

An AMD GPU keeps a number of processes and queues in its hardware; beyond that the driver takes queues off and puts
them on again by turns, and everybody waits. NVIDIA's driver takes turns between any two processes.
"""

MOST_PROCESSES, MOST_QUEUES = 11, 24


def oversubscribed(vendor: str, processes: int, queues: int = 0) -> str:
    """Why there are too many; empty when there are not."""
    if vendor != "amd":
        return ""
    if processes > MOST_PROCESSES:
        return f"{processes} processes share the GPU, and it runs at most {MOST_PROCESSES} without swapping queues"
    if queues > MOST_QUEUES:
        return f"{queues} queues share the GPU, and it holds at most {MOST_QUEUES}"
    return ""
