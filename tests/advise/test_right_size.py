"""Requests that fit what the last runs used."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.advise.right_size import SizeRule, amounts_of, right_size
from kaiwo.advise.run_uses import KINDS_KEPT, RUNS_KEPT, UNKNOWN, PodAmounts, RunUse, RunUses
from kaiwo.forecast.run_time_forecast import RunKey
from kaiwo.model.gpus.gpu import NOBODY
from kaiwo.model.request import Request
from tests.conftest import SIZE

DEVICE_MIB = 80_000
WHOLE = Request(8_000, 64_000, 1)
ASKED = amounts_of(WHOLE, DEVICE_MIB)
RULE = SizeRule()


def run_of(milli: int = 300, mib: int = 10_000, cpu: int = 1_000, memory: int = 4_000, **changes: object) -> RunUse:
    return replace(RunUse(PodAmounts(milli, mib, cpu, memory), ASKED, ASKED, 3600), **changes)


def runs_of(*needs: int, count: int = 5) -> list[RunUse]:
    return [run_of(milli) for milli in needs or (300,) * count]


def test_a_whole_gpu_that_is_used_by_a_third_becomes_a_share_that_may_use_what_others_leave() -> None:
    found = right_size(WHOLE, runs_of(), RULE, DEVICE_MIB)
    assert found is not None
    assert (found.request.gpu_milli, found.request.threads_milli) == (400, 1000)  # 300 and a fifth, in steps of 50
    assert (found.request.cpu_milli, found.request.memory_mib) == (1_200, 6_016)
    assert [each.amount for each in found.reasons] == ["gpu_milli", "cpu_milli", "memory_mib"]


def test_a_share_that_cannot_use_what_others_leave_has_more_headroom() -> None:
    found = right_size(WHOLE, runs_of(), SizeRule(may_burst=False), DEVICE_MIB)
    assert found is not None
    assert (found.request.gpu_milli, found.request.threads_milli) == (450, 0)


def test_memory_decides_where_it_is_the_larger_need() -> None:
    found = right_size(WHOLE, [run_of(100, 32_000)] * 5, RULE, DEVICE_MIB)
    assert found is not None
    assert found.request.gpu_milli == 650  # 48,000 MiB of 80,000, and a step for the multiple of 256


def test_too_few_runs_say_nothing() -> None:
    assert right_size(WHOLE, runs_of(count=4), RULE, DEVICE_MIB) is None


def test_runs_that_failed_are_no_proof_that_little_is_enough() -> None:
    assert right_size(WHOLE, [run_of(10, failed=True)] * 10, RULE, DEVICE_MIB) is None


def test_what_grows_from_run_to_run_is_expected_to_grow_further() -> None:
    found = right_size(WHOLE, runs_of(200, 220, 240, 260, 280, 300), RULE, DEVICE_MIB)
    assert found is not None
    assert found.reasons[0].expected == 300 + 60
    assert found.request.gpu_milli == 450


def test_after_a_run_that_used_all_of_its_smaller_share_it_gets_what_it_asked_for() -> None:
    given = replace(ASKED, gpu_milli=400)
    pressed = run_of(398, given=given)
    found = right_size(WHOLE, [*runs_of(), pressed], RULE, DEVICE_MIB)
    assert found is not None
    assert found.request.gpu_milli == 1000
    assert found.request.memory_mib == 6_016, "what was not pressed stays small"
    assert right_size(WHOLE, [pressed, *runs_of(count=10)][1:], RULE, DEVICE_MIB) is not None


def test_after_a_run_that_failed_with_less_it_gets_all_that_it_asked_for() -> None:
    failed = run_of(failed=True, given=replace(ASKED, memory_mib=6_016))
    assert right_size(WHOLE, [*runs_of(), failed], RULE, DEVICE_MIB) is None


def test_nothing_is_sized_that_nobody_measured() -> None:
    runs = [run_of(UNKNOWN, UNKNOWN, UNKNOWN, 4_000)] * 5
    found = right_size(WHOLE, runs, RULE, DEVICE_MIB)
    assert found is not None
    assert [each.amount for each in found.reasons] == ["memory_mib"]
    assert found.request == replace(WHOLE, memory_mib=6_016)


def test_who_shares_with_nobody_keeps_a_gpu_alone() -> None:
    alone = replace(WHOLE, share_with=(NOBODY,))
    found = right_size(alone, runs_of(), RULE, DEVICE_MIB)
    assert found is not None
    assert found.request.gpu_milli == 1000


def test_gpus_of_work_on_several_are_left_to_its_program() -> None:
    several = replace(WHOLE, gpus=4)
    found = right_size(several, runs_of(), RULE, DEVICE_MIB)
    assert found is not None
    assert (found.request.gpus, found.request.gpu_milli) == (4, 1000)


def test_a_change_that_saves_little_is_not_made() -> None:
    tight = Request(1_300, 6_100, 0)
    assert right_size(tight, [run_of(UNKNOWN, UNKNOWN)] * 5, RULE, DEVICE_MIB) is None


def test_the_memory_of_a_memory_request_shrinks() -> None:
    found = right_size(Request(0, 0, 1, gpu_mib=40_000), [run_of()] * 5, RULE, DEVICE_MIB)
    assert found is not None
    assert found.request.gpu_mib == 32_000  # for 0.4 of the processors, which follow the memory


AMOUNT = st.integers(0, 1000)
RUNS = st.lists(st.tuples(AMOUNT, st.integers(0, DEVICE_MIB), st.integers(0, 9_000), st.integers(0, 70_000)),
                min_size=5, max_size=RUNS_KEPT)  # fmt: skip
REQUESTS = st.one_of(
    st.builds(Request, st.integers(0, 64_000), st.integers(0, 256_000), st.just(1), st.integers(10, 1000)),
    st.builds(Request, st.integers(0, 64_000), st.integers(0, 256_000), st.integers(0, 8)),
    st.builds(Request, st.integers(0, 64_000), st.just(0), st.just(1), gpu_mib=st.integers(1, DEVICE_MIB)),
    st.builds(Request, st.just(0), st.just(0), st.just(1), st.integers(10, 999), gpu_mib=st.integers(1, DEVICE_MIB)),
)


@settings(max_examples=60 * SIZE)
@given(REQUESTS, RUNS, st.booleans(), st.integers(0, 100))
def test_nothing_gets_less_than_its_peak_with_headroom_or_more_than_it_asked_for(
    request: Request, uses: list[tuple[int, int, int, int]], may_burst: bool, headroom: int
) -> None:
    asked = amounts_of(request, DEVICE_MIB)
    runs = [RunUse(PodAmounts(*use), asked, asked, 60) for use in uses]
    found = right_size(request, runs, SizeRule(headroom, 5, may_burst), DEVICE_MIB)
    if found is None:
        return
    given_amounts = amounts_of(found.request, DEVICE_MIB)
    assert found.reasons
    assert {each.amount for each in found.reasons} <= set(PodAmounts.__struct_fields__)
    for name in PodAmounts.__struct_fields__:
        before, after = getattr(asked, name), getattr(given_amounts, name)
        peak = max(getattr(run.peak, name) for run in runs)
        assert after <= before, f"{name}: more than was asked for"
        if after < before:
            assert after * 100 >= min(before * 100, peak * (100 + headroom)), f"{name}: less than the peak"
    kept = {"gpus", "partition", "gpu_models", "device_mib", "node_rules"}
    assert all(getattr(found.request, name) == getattr(request, name) for name in kept)


def test_the_last_runs_of_the_last_kinds_are_kept() -> None:
    uses = RunUses()
    for number in range(KINDS_KEPT + 5):
        uses.add(RunKey("u", f"k{number}", "q", "", 1000), run_of(number % 1000))
    for _ in range(RUNS_KEPT + 3):
        uses.add(RunKey("u", "k7", "q", "", 1000), run_of(7))
    again = RunUses(uses.save())
    assert not again.of(RunKey("u", "k4", "q", "", 1000))
    assert len(again.of(RunKey("u", "k7", "q", "", 1000))) == RUNS_KEPT
    assert len(again.save()) == KINDS_KEPT
