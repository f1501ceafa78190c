"""docs/gpu-sharing.md says what the code promises."""

import re

from bench._isolation_guarantees import ESCAPES, GUARANTEES
from kaiwo.model.gpus.gpu import GRADE_RANKS
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "gpu-sharing.md").read_text()


def rows(header: str) -> list[list[str]]:
    """The rows of the table whose header begins so."""
    lines = PAGE[PAGE.index(header) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_ways_out_is_that_of_the_code() -> None:
    table = {way: (tried, mps, slices) for way, tried, mps, slices in rows("| way |")}
    assert {way: tried for way, (tried, _, _) in table.items()} == dict(ESCAPES)
    assert {way: cell for way, (_, cell, _) in table.items() if cell} == dict(GUARANTEES["mps"])
    assert {way: cell for way, (_, _, cell) in table.items() if cell} == dict(GUARANTEES["time-slicing"])


def test_every_grade_is_there_from_strong_to_weak() -> None:
    grades = [row[0] for row in rows("| grade |")]
    assert set(grades) == set(GRADE_RANKS)
    assert [GRADE_RANKS[grade] for grade in grades] == sorted(GRADE_RANKS.values(), reverse=True)


def test_every_annotation_on_the_page_is_ours() -> None:
    assert set(re.findall(r"kaiwo\.ai/[a-z-]+", PAGE)) == {
        "kaiwo.ai/gpu-fraction", "kaiwo.ai/gpu-memory", "kaiwo.ai/gpu-isolation", "kaiwo.ai/gpu-isolation-grade",
        "kaiwo.ai/gpu-share", "kaiwo.ai/gpu-share-grade", "kaiwo.ai/gpu-sharing",
        "kaiwo.ai/gpu-devices", "kaiwo.ai/gpu-share-with", "kaiwo.ai/gpu-threads", "kaiwo.ai/gpu-max-threads",
        "kaiwo.ai/gpu-default-threads", "kaiwo.ai/gpu-max-share-memory",
        "kaiwo.ai/devices", "kaiwo.ai/granted-devices", "kaiwo.ai/grant-signature",
    }  # fmt: skip
