"""The plots of the report: their axes say what a reader expects."""

import re

import pytest

from kaiwo.simulate.svg_plots import PlotLine, line_plot


def marks(svg: str) -> list[str]:
    """The numbers below the horizontal axis."""
    return re.findall(r'y="234" text-anchor="\w+">([^<]*)</text>', svg)


@pytest.mark.parametrize(
    ("first", "says"), [(0.0, "0"), (0.000046, "0"), (0.1, "0"), (4.0, "4")], ids=["zero", "seconds", "hours", "days"]
)
def test_an_axis_of_days_begins_where_a_reader_expects_it(first: float, says: str) -> None:
    shown = marks(line_plot([PlotLine("fifo", [(first, 1.0), (8.0, 2.0)])], "days", "%"))
    assert shown[0] == says
    assert shown[-1] == "8"


def test_the_last_mark_is_not_cut_off_at_the_edge() -> None:
    svg = line_plot([PlotLine("fifo", [(0.0, 1.0), (0.092, 2.0)])], "days", "%")
    assert 'text-anchor="end">0.092</text>' in svg
