"""Time series: what subjects did over a range of time."""

import msgspec


class MeasureView(msgspec.Struct, frozen=True):
    """Something that is recorded over time."""

    kind: str  # of its subjects
    name: str  # ends in its unit, unless it is a count
    help: str


class MeasuresView(msgspec.Struct, frozen=True):
    """All measures that are recorded."""

    measures: list[MeasureView]


class SubjectsView(msgspec.Struct, frozen=True):
    """The names of which something was recorded in the last month."""

    kind: str
    names: list[str]


class OneSeriesView(msgspec.Struct, frozen=True):
    """The values of one subject."""

    name: str
    values: list[int | None]  # one a step; null: nobody knows


class SeriesView(msgspec.Struct, frozen=True):
    """One measure of some subjects."""

    kind: str
    measure: str
    statistic: str  # mean | most, of what a step covers
    begins_s: int  # of the first step
    step_s: int
    series: list[OneSeriesView]
