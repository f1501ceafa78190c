"""Tables fit: never wider than the terminal, never wrapped, wide characters counted as wide."""

from hypothesis import given
from hypothesis import strategies as st

from kaiwo.cli.table import Column, cut, display_width, lay_out

texts = st.text(alphabet=st.sampled_from("abc xyz…数据é\u0301🚀-"), max_size=30)


def columns(count: int) -> list[Column]:
    return [Column(f"TITLE{i}", lambda *_: "", is_number=i % 2 == 1) for i in range(count)]


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.lists(texts, min_size=n, max_size=n)))),
       st.integers(1, 120))  # fmt: skip
def test_no_line_is_wider_than_the_terminal(table: tuple[int, list[list[str]]], width: int) -> None:
    count, rows = table
    for line in lay_out(columns(count), rows, width):
        assert display_width(line) <= width
        assert "\n" not in line


@given(texts, st.integers(0, 40))
def test_a_cut_text_fits_and_says_that_it_was_cut(text: str, width: int) -> None:
    short = cut(text, width)
    assert display_width(short) <= width
    assert short == text or width == 0 or short.endswith("…")


def test_the_right_columns_give_way_first() -> None:
    rows = [["train-llama", "needs 8 free GPUs on one node; the best has 6"]]
    wide = lay_out([Column("NAME", lambda *_: ""), Column("WHY", lambda *_: "")], rows, 31)
    assert wide == ["NAME         WHY", "train-llama  needs 8 free GPUs…"]


def test_a_pipe_gets_everything() -> None:
    assert lay_out(columns(1), [["x" * 300]], 0)[1] == "x" * 300


def test_wide_characters_line_up() -> None:
    first, second = lay_out(columns(2), [["数据", "1"], ["abcd", "2"]], 40, titles=False)
    assert display_width(first) == display_width(second)


def test_a_column_that_nobody_fills_is_left_out() -> None:
    assert lay_out(columns(2), [["a", ""], ["b", ""]], 0) == ["TITLE0", "a", "b"]


def test_colour_does_not_count_as_width() -> None:
    state = [Column("S", lambda *_: "", is_state=True), Column("X", lambda *_: "")]
    lines = lay_out(state, [["running", "1"], ["held", "2"]], 12, paint=lambda text: f"\x1b[32m{text}\x1b[0m")
    assert lines[1] == "\x1b[32mrunning\x1b[0m  1"
    assert lines[2] == "\x1b[32mheld\x1b[0m     2"
