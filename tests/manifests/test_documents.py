"""Whatever text somebody sends: documents, or one sentence that names the document, the line and the way out."""

import time

import pytest
import yaml

from kaiwo.manifests import parse_all
from kaiwo.manifests.text import yaml_reader
from kaiwo.manifests.text.read_documents import read_documents, read_json
from kaiwo.model.errors import ConfigError


def complaint(text: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        read_documents(text)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_many_documents_are_read_and_empty_ones_left_out() -> None:
    assert read_documents("a: 1\n---\n---\n# nothing\n---\nb: x\n...\n") == [{"a": 1}, {"b": "x"}]


def test_json_is_read_too() -> None:
    assert read_documents('{"name": "\\ud83d\\ude80",\n\t"gpus": 4}') == [{"name": "🚀", "gpus": 4}]
    assert read_documents('{"a": 1}\n---\n{"b": 2}') == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("4", 4),
        ("-4", -4),
        ("0x10", 16),
        ("1_000", 1000),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("no", False),
        ("~", None),
        ("", None),
        ('"4"', "4"),
        ("!!str 4", "4"),
        ("010", "010"),  # octal once, decimal now: text
        ("1:30:00", "1:30:00"),  # sexagesimal once: text
        ("2024-01-31", "2024-01-31"),
        ("16Gi", "16Gi"),
        ("0-9", "0-9"),
        ("1,3,5", "1,3,5"),
    ],
)
def test_scalars_are_what_they_look_like(written: str, value: object) -> None:
    assert read_documents(f"a: {written}") == [{"a": value}]


def test_anchors_and_merges_are_written_out() -> None:
    text = "a: &a {x: 1, y: 2}\nb: *a\nc: {<<: *a, y: 3}\nd: {<<: [{z: 0}, *a]}\n'<<': text"
    assert read_documents(text) == [
        {
            "a": {"x": 1, "y": 2},
            "b": {"x": 1, "y": 2},
            "c": {"y": 3, "x": 1},
            "d": {"z": 0, "x": 1, "y": 2},
            "<<": "text",
        }
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["no document"]),
        ("# only a comment", ["no document"]),
        ("hello", ["document 1", "text, not a mapping"]),
        ("a: 1\n---\n- x", ["document 2", "a list, not a mapping"]),
        ("[1, 2]", ["document 1", "a list"]),
        ("a: 1\n---\nb:\n\tc: 1", ["document 2, line 4", "tab", "indent with spaces"]),
        ("a: b: c", ["document 1, line 1", "malformed", "colons"]),
        ('a: "x\n', ["malformed", "quotes"]),
        ("a: [1,\n2", ["malformed", "starts on line 1"]),
        ("a: {]", ["line 1", "malformed"]),
        ("a: 1\nb:\n  c: 1\n  c: 2", ["document 1, line 4", '"c"', "appears twice"]),
        ('{"a": 1, "a": 2}', ["a appears twice", "keep one"]),
        ('{"a": {"b": 1, "c": 2, "b": 1}}', ["b appears twice"]),
        ("a: {b: 1, c: 2, b: 1}", ["line 1", '"b"', "appears twice"]),
        ("1: a", ["line 1", "the key", "is not text", "quotes"]),
        ("on: a", ["the key", "is not text"]),
        ("~: a", ["the key", "is not text"]),
        ("? [a]\n: b", ["line 1", "used as a key"]),
        ("a: &x {b: 1}\n*x : 2", ["line 2", "key"]),
        ("a: *nowhere", ["line 1", "alias", "anchor"]),
        ("a: &a [*a]", ["alias", "anchor"]),
        ("<<: 1", ["line 1", "takes a mapping"]),
        ("a: !!python/object/apply:os.system [ls]", ["tag", "not allowed"]),
        ("a: !!binary aGk=", ["tag", "not allowed"]),
        ("a: !custom 1", ["tag", "not allowed"]),
        ("a: 99999999999999999999", ["line 1", "too large", "quotes"]),
        ('{"a": 99999999999999999999}', ["too large"]),
        ('{"a": ' + "9" * 5000 + "}", ["too large"]),
        ("a: " + "9" * 5000, ["too large"]),
        ("a: .nan", ["line 1", "not a finite number"]),
        ("a: -.inf", ["not a finite number"]),
        ("a: 1e999", ["not a finite number"]),
        ('{"a": NaN}', ["not a finite number"]),
        ('{"a": {"b": 1e999}}', ["a.b", "not a finite number"]),
        ("a: 1\nb\0: 2", ["line 2", "NUL"]),
        ('a: "\\0"', ["document 1", "a contains a NUL"]),
        ('{"a": ["\\ud800"]}', ["a[0]", "surrogate"]),
        ("a: \ud800", ["not valid Unicode"]),
        ("a: \x01", ["not YAML text"]),
        ("- " * 1000, ["nested more than 64 levels"]),
        ("[" * 1000, ["nested more than 64 levels"]),
        ("%TAG !a! x\n" * 50 + "---\na: 1", ["%TAG"]),
        ("@a: 1", ["malformed"]),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bad_text_gets_one_sentence(text: str, parts: list[str]) -> None:
    message = complaint(text)
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize("data", [b"\xff\xfe\x00a", b"a: \x80", bytes(range(256)), b"\x1f\x8b\x08\x00" * 100])
def test_binary_files_are_no_text(data: bytes) -> None:
    assert "UTF-8" in complaint(data) or "NUL" in complaint(data)


def test_a_byte_order_mark_does_no_harm() -> None:
    assert read_documents(b"\xef\xbb\xbfa: 1") == [{"a": 1}]


def test_the_size_is_bounded() -> None:
    assert "1,000,001 bytes" in complaint("a" * 1_000_001)
    assert "1,000,002 bytes" in complaint("é" * 500_001)
    with pytest.raises(ConfigError, match="10 bytes and the maximum is 5"):
        read_documents("a: 1234567", limit_bytes=5)


def bomb(levels: int, width: int) -> str:
    rows = ["l0: &l0 [x, x]"]
    rows += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(rows)


MEGABYTE = 1_000_000
HEAVY = {
    "billion laughs": bomb(20, 9),
    "billion laughs by merge": "a: &a {x: 1}\n" + "".join(f"b{i}: {{<<: [{'*a, ' * 500}]}}\n" for i in range(300)),
    "long text, many times": "a: &a " + "x" * 900_000 + "\nb: [" + "*a, " * 5000 + "]",
    "brackets": "[" * MEGABYTE,
    "braces": '{"a":' * (MEGABYTE // 5),
    "dashes": "- " * (MEGABYTE // 2),
    "questions": "? " * (MEGABYTE // 2),
    "anchors": "&a " * (MEGABYTE // 3),
    "items": "- a\n" * (MEGABYTE // 4),
    "documents": "---\n" * (MEGABYTE // 4),
    "tag lines": "".join(f"%TAG !a{i}! x\n" for i in range(MEGABYTE // 15)),
    "spaces": " " * MEGABYTE,
    "quotes": "'" * MEGABYTE,
    "one word": "x" * MEGABYTE,
    "a long key": "x" * (MEGABYTE - 5) + ": 1",
    "many keys": "".join(f"k{i}: 1\n" for i in range(MEGABYTE // 12)),
    "json twice": '{"a": 1, ' + '"b": 1, ' * (MEGABYTE // 9) + '"c": 1}',
    "json list": "[" + "1," * (MEGABYTE // 2 - 2) + "1]",
}


@pytest.mark.parametrize("text", HEAVY.values(), ids=HEAVY.keys())
def test_a_megabyte_of_garbage_is_refused_within_seconds(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        parse_all(text)
    assert len(str(caught.value)) < 700  # it lists all fields
    assert time.process_time() - began < 10


def test_a_secret_is_not_shown() -> None:
    for text in (
        'env: {KEY: "hunter2',
        "env: {KEY: 99999999999999999999}",
        'env: {KEY: "hunter2\\0"}',
        "KEY: hunter2: x",
    ):
        assert "hunter2" not in complaint(text)
        assert "9999999999999999999" not in complaint(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"{", "line 1 is not JSON"),
        (b'{"a": 1,\n}', "line 2 is not JSON"),
        (b"[]", "a list, not a mapping"),
        (b"name: x", "not JSON"),
        (b'{"a": ' * 100_000, "nested"),
        (b'{"name": "x", "gpus": 1, "gpus": 8}', "gpus appears twice"),
        (b'{"a\\ud800": 1, "a\\ud800": 1}', "appears twice"),
    ],
)
def test_a_form_must_be_json(text: bytes, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        read_json(text)


def test_the_parser_written_in_python_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &a {x: 1, y: '2', z: yes}\nb: [*a, ~, 0.5, 16Gi]\n---\n{c: {<<: {d: 1}}}\n"
    by_libyaml = read_documents(text)
    monkeypatch.setattr(yaml_reader, "_LOADER", yaml.SafeLoader)
    assert read_documents(text) == by_libyaml
    assert "line 2" in complaint("a:\n\tb: 1")
    assert "line 1" in complaint("a: b: c")
    assert "nested" in complaint("[" * 1000)
