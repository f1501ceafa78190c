"""Quantities and names read well."""

import pytest

from kaiwo.api.views.fragments import KindRoomView
from kaiwo.cli.output import formatting, printing
from kaiwo.cli.output.kind_words import kind_words
from kaiwo.model import amounts
from kaiwo.model.errors import ConfigError


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (840, "14 min"), (7200, "2 h"), (259_200, "3 d"), (-5, "0 s")],
)
def test_an_age_has_one_unit(seconds: int, text: str) -> None:
    assert amounts.short_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text", "typed"),
    [(0, "0 s", "0s"), (90, "1 min 30 s", "1m30s"), (9000, "2 h 30 min", "2h30m"), (86400, "1 d", "1d")],
)
def test_a_duration_is_shown_in_full_and_typed_without_spaces(seconds: int, text: str, typed: str) -> None:
    assert amounts.duration(seconds) == text
    assert formatting.parse_duration(typed) == seconds


@pytest.mark.parametrize(("seconds", "text"), [(119, "119 s"), (125, "2 min"), (7530, "2 h 5 min"), (-3, "0 s")])
def test_a_rounded_duration_leaves_out_seconds_from_two_minutes_on(seconds: int, text: str) -> None:
    assert amounts.rounded_duration(seconds) == text


@pytest.mark.parametrize("text", ["", "x", "1y", "-5", "2h 30m", "1.5h"])
def test_what_is_no_span_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="write it like"):
        formatting.parse_duration(text)


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0"), (500, "0.5"), (8000, "8"), (333, "0.333"), (1250, "1.25"), (-500, "-0.5")]
)
def test_thousandths_have_no_needless_zeros(amount: int, text: str) -> None:
    assert amounts.thousandths(amount) == text


@pytest.mark.parametrize(
    ("mib", "text"), [(0, "0"), (512, "512 MiB"), (196608, "192 GiB"), (1536, "1.5 GiB"), (2097152, "2 TiB")]
)
def test_memory_is_in_the_largest_unit(mib: int, text: str) -> None:
    assert amounts.rounded_memory(mib) == text


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (4, "gpus", "4 GPUs"),
        (1, "gpus", "1 GPU"),
        (500, "milli-gpu", "0.5 GPU"),
        (1000, "milli-gpu", "1 GPU"),
        (0, "milli-gpu", "0 GPUs"),
        (1797, "milli-gpu", "1.797 GPUs"),
        (1000, "milli-cpu", "1 CPU"),
        (2000, "mib", "2000 MiB"),
        (2048, "mib", "2 GiB"),
        (90, "s", "1 min 30 s"),
        (3, "pods", "3 pods"),
        (7, "", "7"),
    ],
)
def test_an_obstacle_tells_its_numbers_with_units(number: int, unit: str, text: str) -> None:
    assert amounts.amount(number, unit) == text


def test_the_default_namespace_may_be_left_out() -> None:
    assert formatting.full_name("train") == "default/train"
    assert formatting.full_name("team/train") == "team/train"
    assert formatting.short_name("default/train") == "train"
    assert formatting.short_name("team/train") == "team/train"


@pytest.mark.parametrize("name", ["", "/", "a/", "/a", "a/b/c"])
def test_what_cannot_be_a_workload_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not a workload name"):
        formatting.full_name(name)


def test_a_name_cannot_move_the_cursor() -> None:
    assert "\x1b" not in formatting.one_line("evil\x1b[2Jname\nsecond\u202erow")
    assert "\n" not in formatting.one_line("a\nb")


def test_a_long_hint_keeps_inside_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(printing, "terminal_width", lambda: 20)
    printing.hint("the first 4 of 55 workloads; --limit 0 shows all")
    said = capsys.readouterr().err
    assert max(map(len, said.splitlines())) <= 20
    assert " ".join(said.split()) == "the first 4 of 55 workloads; --limit 0 shows all"


@pytest.mark.parametrize(("cpu_milli", "words"), [(1000, "8 GPUs, 1 CPU"), (500, "8 GPUs, 0.5 CPU"), (0, "8 GPUs")])
def test_a_kind_of_request_names_its_amounts(cpu_milli: int, words: str) -> None:
    kind = KindRoomView(gpus=8, gpu_milli=1000, cpu_milli=cpu_milli, models=[], part=1.0, pods=0)
    assert kind_words(kind) == words
