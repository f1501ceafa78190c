"""The resolutions of the time series: how far apart samples are, and for how long they are kept.

Samples are stored one by one, as frames of all subjects, until a block is complete. Then the block is stored by
subject, so that one subject's month is read without those of all others.
"""

from enum import IntEnum

import msgspec

DAY_S = 86_400


class Statistic(IntEnum):
    """Of the samples of the resolution below that one sample stands for."""

    MEAN = 0
    MOST = 1


class Resolution(msgspec.Struct, frozen=True):
    number: int
    step_s: int
    block_s: int  # a multiple of the step
    keep_s: int

    @property
    def samples(self) -> int:
        """Of one block."""
        return self.block_s // self.step_s


RAW = Resolution(0, 10, 600, 2 * 3600)
MINUTES = Resolution(1, 60, 3600, 7 * DAY_S)
HOURS = Resolution(2, 3600, DAY_S, 30 * DAY_S)
RESOLUTIONS = (RAW, MINUTES, HOURS)


def statistics_of(resolution: Resolution) -> tuple[Statistic, ...]:
    return (Statistic.MEAN,) if resolution is RAW else (Statistic.MEAN, Statistic.MOST)
