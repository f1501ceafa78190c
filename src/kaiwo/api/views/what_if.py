"""The answer to a what-if question: what each queue gets without the changes, and with them."""

import msgspec


class QueueForecastView(msgspec.Struct, frozen=True):
    """What one queue gets until the run ends. Lists of two: without the changes, then with them."""

    queue: str
    waiting: list[int]  # workloads at the beginning
    started: list[int]  # of these
    wait_s: list[int]  # mean wait from now on, of those that start
    gpu_hours: list[float]  # in use
    evictions: list[int]  # workloads that are stopped for others


class WhatIfView(msgspec.Struct, frozen=True):
    """Lists of two: without the changes, then with them."""

    as_of_s: int
    until_s: list[int]  # how far the runs went
    is_whole: list[bool]  # False: that run was ended before nothing more would happen
    gpus: list[int]
    utilisation: list[float]  # of the GPUs, from 0 to 1, until the end of each run
    queues: list[QueueForecastView]
    added: dict[str, int]  # workloads of the question: when each starts; 0: not before the run ends
    unknown: int  # running and waiting workloads whose run time nobody knows: they never end here
