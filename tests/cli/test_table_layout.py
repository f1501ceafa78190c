"""Tables fit: never wider than the terminal, never wrapped, wide characters counted as wide."""

from hypothesis import given
from hypothesis import strategies as st

from kaiwo.cli.output.table_layout import Column, cut, display_width, lay_out

texts = st.text(alphabet=st.sampled_from("abc xyz…数据é\u0301🚀-"), max_size=30)


def columns(count: int, has_prose: bool = False) -> list[Column]:
    made = [Column(f"TITLE{i}", lambda *_: "", is_number=i % 2 == 1) for i in range(count)]
    return [*made[:-1], Column("WHY", lambda *_: "", is_prose=True)] if has_prose else made


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.lists(texts, min_size=n, max_size=n)))),
       st.integers(1, 120), st.booleans())  # fmt: skip
def test_no_line_is_wider_than_the_terminal(table: tuple[int, list[list[str]]], width: int, has_prose: bool) -> None:
    count, rows = table
    for line in lay_out(columns(count, has_prose), rows, width):
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


SENTENCE = "it needs 4 GPUs, but queue 'research' has 1.797 GPUs left of its limit"
WORK = [Column("NAME", lambda *_: ""), Column("STATE", lambda *_: "", is_state=True),
        Column("WANTS", lambda *_: "", min_width=10), Column("WHERE OR WHY", lambda *_: "", is_prose=True)]  # fmt: skip


def test_a_sentence_that_has_no_room_is_told_below_its_row() -> None:
    rows = [["reward-model", "waiting", "4 GPUs", SENTENCE], ["llama-pretrain", "running", "8 GPUs", "node-7"]]
    assert lay_out(WORK, rows, 50) == [
        "NAME            STATE    WANTS   WHERE OR WHY",
        "reward-model    waiting  4 GPUs",
        "    it needs 4 GPUs, but queue 'research' has",
        "    1.797 GPUs left of its limit",
        "llama-pretrain  running  8 GPUs  node-7",
    ]
    assert lay_out(WORK, rows, 120)[1].endswith(SENTENCE)


def test_no_word_of_a_sentence_is_ever_lost() -> None:
    rows = [["reward-model", "waiting", "2 pods x 8 GPUs", SENTENCE]]
    for width in range(20, 140):
        drawn = " ".join(lay_out(WORK, rows, width, titles=False))
        assert [word for word in SENTENCE.split() if word not in drawn] == [], width


def test_a_name_is_cut_only_where_the_state_would_not_be_seen() -> None:
    rows = [["demo/nightly-regression", "succeeded", "2 pods x 4 GPUs", "node-1"]]
    assert "demo/nightly-regression  succeeded" in lay_out(WORK, rows, 40, titles=False)[0]
    assert lay_out(WORK, rows, 28, titles=False)[0].startswith("demo/nightly-re…  succeeded")


def test_columns_that_have_no_room_are_hinted_at_once() -> None:
    wide = [Column(title, lambda *_: "", is_number=True) for title in ("QUOTA", "LIMIT", "ASKED")]
    assert lay_out(wide, [["1", "2", "3"]], 15) == ["QUOTA  LIMIT …", "    1      2"]
    assert lay_out(wide, [["1", "2", "3"]], 6, titles=False) == ["1  2 …"]


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
