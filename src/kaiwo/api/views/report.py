"""Consumption: what queues and users held and used of GPUs, and who holds idle ones."""

import msgspec


class ConsumptionView(msgspec.Struct, frozen=True):
    """GPU time of one group. What is not grouped by is empty. Thousandths of a GPU times seconds."""

    period: str  # 2026-11, or 2026-11-19
    queue: str
    user: str
    held_gpu_milli_s: int
    measured_gpu_milli_s: int  # the part of it whose use was measured
    used_gpu_milli_s: int  # of the measured part; the rest of it was wasted


class ReportView(msgspec.Struct, frozen=True):
    """Consumption in a range of days."""

    rows: list[ConsumptionView]
    hidden: str = ""  # what is not shown to you, and why; empty: you see everything


class IdleView(msgspec.Struct, frozen=True):
    """Running work whose GPUs do nothing."""

    workload: str
    queue: str
    user: str
    held_gpu_milli: int
    idle_gpu_milli: int  # of the GPUs that it alone holds, and that an agent measures
    since_s: int  # since when it has idle GPUs; not before this start of Kaiwo


class IdleListView(msgspec.Struct, frozen=True):
    """All of them, the most idle GPU time first."""

    now_s: int
    most_percent: int  # a GPU that is busier is not idle
    measured: bool  # False: no agent measures any GPU, so nobody knows
    items: list[IdleView]
