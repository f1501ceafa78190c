"""The placement benchmark fails when a target is missed, and only then."""

from bench.placement import CEILINGS, PUBLISHED, gap_closed, mean_gap_closed, missed_targets
from kaiwo.simulate.openb_run import OpenbFigures

ALLOCATED = {("default", name, 42): {"100": at, "130": at} for name, at in (("fgd", 95.0), ("best-fit", 92.0))}
RATIOS = {("default", name, 42): {"60": 20.0, "80": 30.0, "90": 50.0} for name in PUBLISHED}


def figures(at_100: float, at_130: float, ratio: float = 20.0, p50_ms: float = 1.0) -> OpenbFigures:
    return OpenbFigures(42, at_100, at_130, {"60": ratio, "80": 30.0, "90": 50.0}, p50_ms, 10.0, 400.0)


def missed(ours: OpenbFigures, fgd: float = 95.1, best_fit: float = 91.9) -> list[str]:
    runs = {"ours": [ours], "fgd": [figures(fgd, fgd)], "best-fit": [figures(best_fit, best_fit)]}
    return missed_targets({"default": runs}, "ours", "learned", ALLOCATED, RATIOS)


def test_a_run_on_every_bound_misses_nothing() -> None:
    assert missed(figures(96.0, 95.0)) == []


def test_each_target_is_named() -> None:
    assert "at 100 %, above FGD's 95.0" in missed(figures(95.0, 95.0))[0]
    assert missed(figures(96.0, 94.99)) == ["default 42: 94.99 at 130 %, at least FGD's 95.0 is due"]
    assert missed(figures(96.0, 95.0, ratio=20.01)) == [
        "default 42: fragmentation 20.01 at 60 %, at most FGD's 20.00 is due"
    ]
    assert missed(figures(96.0, 95.0, p50_ms=1.01)) == ["default 42: p50_ms is 1.01, at most 1.0 is due"]
    assert "at least 95.9 is due" in missed(figures(95.89, 95.0))[0]
    assert missed(figures(96.0, 95.0), fgd=95.11) == ["default 42: fgd gives 95.11, published is 95.0"]


def test_the_gap_is_measured_from_fgd_to_the_ceiling() -> None:
    assert gap_closed([figures(95.0, 95.0)], "default", ALLOCATED) == 0
    assert gap_closed([figures(CEILINGS["default"], 95.0)], "default", ALLOCATED) == 1


def test_a_variant_without_a_ceiling_has_no_gap() -> None:
    allocated = {("new", "fgd", 42): {"100": 90.0}}
    assert mean_gap_closed({"new": {"ours": [figures(95.0, 95.0)]}}, "ours", allocated) is None
    both = {"new": {"ours": [figures(95.0, 95.0)]}, "default": {"ours": [figures(CEILINGS["default"], 95.0)]}}
    assert mean_gap_closed(both, "ours", {**allocated, **ALLOCATED}) == 1
