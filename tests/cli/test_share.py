"""`kaiwo share`: arithmetic that a person can check."""

import msgspec
import pytest

from kaiwo.api.views.answers import Page
from kaiwo.api.views.queues import ShareView, TermsView, TurnView, WaitingWorkloadView
from kaiwo.model.queue import SharePolicy
from tests.cli.conftest import Type
from tests.cli.stub_server import NOW, Stub, problem_body


def terms(resource: str, share: int) -> TermsView:
    lines = [
        "divided 16: the fair share of lab",
        f"share {share} = deserved 8 + 4 (weight 1 of 3, of 13 left, rounded down to whole GPUs) + 0 remainder",
    ]
    return TermsView(
        resource=resource, total=16_000, used=0, fixed=0, waiting=0, wants=0, quota=-1, limit=-1, deserved=8000,
        offered=13_000, weight=1, weights=3, part=4000, remainder=0, share=1000 * share, arithmetic=lines,
    )  # fmt: skip


def share(queue: str, place: int = 0, parent: str = "", ppm: int = 500_000) -> ShareView:
    turn = None
    if place:
        turn = TurnView(
            place=place, of=2, workload=f"default/{queue}-job", policy_key=0, is_over_share=False, is_over_quota=True,
            priority=100, has_no_share=False, dominant_with_it_ppm=ppm, dominant_ppm=125_000, gpu_milli=4000, age=0,
        )  # fmt: skip
    resources = [terms(name, 12) for name in ("gpu", "cpu", "memory")]
    line = [WaitingWorkloadView(f"default/{queue}-job", 50, NOW - 120, [[-50, NOW - 120], [7]])] if place else []
    policy = SharePolicy.FIFO if parent else SharePolicy.DRF
    return ShareView(queue, parent, 1 if parent else 0, policy, "none: it never takes", resources, turn, ["age"], line)


@pytest.fixture
def shares(stub: Stub) -> list[ShareView]:
    found = [share("lab", 1), share("speech", 2, "lab", 1 << 50), share("vision", 1, "lab"), share("ops")]
    stub.answers["GET /shares"] = (200, msgspec.json.encode(Page(found, len(found))))
    for each in found:
        stub.answers[f"GET /shares/{each.queue}"] = (200, msgspec.json.encode(each))
    return found


def test_every_queue_has_its_sum(shares: list[ShareView], kaiwo: Type) -> None:
    out = kaiwo("share").out
    wanted = "share 12 = deserved 8 + 4 (weight 1 of 3, of 13 left, rounded down to whole GPUs) + 0 remainder"
    assert out.count(wanted) == len(shares)
    assert "speech, below lab, which divides the rest by FIFO" in out
    assert "lab, a top-level queue; the top level divides the rest by DRF" in out
    assert kaiwo("share", "-o", "wide").out.count(wanted) == 3 * len(shares)


def test_who_is_next_is_a_table_for_each_group_of_siblings(shares: list[ShareView], kaiwo: Type) -> None:
    lines = kaiwo("share").lines()
    below = lines.index("Next queue below lab (by FIFO):")
    assert lines[below + 1].split()[:2] == ["NEXT", "QUEUE"]
    assert [line.split()[:2] for line in lines[below + 2 : below + 4]] == [["1", "vision"], ["2", "speech"]]
    assert "no share" in lines[below + 3]
    assert "12.5 %" in lines[below + 2]
    top = lines.index("Next top-level queue (by DRF):")
    assert lines[top + 2].split()[:2] == ["1", "lab"]
    assert "ops" not in "".join(lines[top:]), "nobody waits in it"


def test_one_queue_is_shown_with_all_resources_and_its_siblings(shares: list[ShareView], kaiwo: Type) -> None:
    out = kaiwo("share", "vision").out
    assert [title for title in ("GPUs", "CPUs", "memory") if f"\n  {title}\n" in out] == ["GPUs", "CPUs", "memory"]
    assert "Next queue below lab" in out
    assert "Next top-level queue" not in out
    assert "First in line in vision (by age; lowest keys first):" in out
    assert out.splitlines()[-1].split() == ["vision-job", "50", "2", "min", "-50", str(NOW - 120), "7"]


def test_json_is_the_apis_own(shares: list[ShareView], kaiwo: Type) -> None:
    assert msgspec.json.decode(kaiwo("share", "lab", "-o", "json").out, type=ShareView) == shares[0]
    page = msgspec.json.decode(kaiwo("share", "-o", "json").out, type=Page[ShareView])
    assert page.items == shares


def test_nobody_waits(stub: Stub, kaiwo: Type) -> None:
    stub.answers["GET /shares"] = (200, msgspec.json.encode(Page([share("lab")], 1)))
    assert kaiwo("share").lines()[-1] == "No workload waits, so no queue is next."


def test_a_queue_that_is_not_there(stub: Stub, kaiwo: Type) -> None:
    stub.answers["GET /shares/nope"] = (404, problem_body("not-found", "there is no queue 'nope'"))
    assert kaiwo("share", "nope") == (1, "", "kaiwo: there is no queue 'nope'\n")
