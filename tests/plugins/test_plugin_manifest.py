"""The manifest of a plugin, the version of Kaiwo that it needs, and the order in which plugins are loaded."""

import pytest

from kaiwo.model.errors import PluginError
from kaiwo.runtime.plugin_worker.plugin_manifest import (
    PluginManifest,
    dependents,
    fits_version,
    load_order,
    read_manifest,
)

GOOD = b"""
name = "a-plugin"
version = "1.2"
kinds = ["score"]
object = "a_plugin.code:Thing"
"""


def manifest(name: str, *needs: str, kaiwo: str = "") -> PluginManifest:
    return PluginManifest(name, "1", ("score",), "m:C", kaiwo, needs)


def test_a_manifest_is_read() -> None:
    found = read_manifest(GOOD + b'kaiwo = ">=0.1, <2"\ndependencies = ["other"]', "here")
    assert found == PluginManifest("a-plugin", "1.2", ("score",), "a_plugin.code:Thing", ">=0.1, <2", ("other",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"name = ", "is not a manifest"),
        (b"\xff", "is not a manifest"),
        (GOOD.replace(b'"1.2"', b"1"), "is not a manifest"),
        (GOOD.replace(b'"1.2"', b'""'), "version is ''"),
        (GOOD + b'colour = "red"', "unknown field"),
        (GOOD.replace(b"a-plugin", b"A Plugin"), "lower-case"),
        (GOOD.replace(b'["score"]', b"[]"), "names no kind"),
        (GOOD.replace(b'["score"]', b'["unbind"]'), "names the kind 'unbind'"),
        (GOOD.replace(b".code:Thing", b".code"), "module:Class"),
        (GOOD.replace(b"a_plugin.code:Thing", b"os;x:Thing"), "module:Class"),
        (GOOD + b'kaiwo = "~1"', "version range"),
        (GOOD + b"#" * 70_000, "longer than"),
    ],
)
def test_a_manifest_that_is_not_right_is_refused_with_the_reason(text: bytes, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        read_manifest(text, "here")


@pytest.mark.parametrize(
    ("wants", "version", "fits"),
    [
        ("", "0.1.0", True),
        (">=0.1", "0.1.0", True),
        (">=0.1.1", "0.1.0", False),
        (">0.1", "0.1.0", False),
        (">0.1", "0.1.1", True),
        ("<0.2", "0.1.9", True),
        ("<0.2", "0.2.0", False),
        ("<=0.2", "0.2.0", True),
        ("==0.1", "0.1.0", True),
        ("!=0.1", "0.1.0", False),
        (">=0.1,<0.2", "0.2", False),
        (">=0.9", "0.10.0", True),
        (">=1", "1.0.0rc1", True),
    ],
)
def test_the_required_version_is_compared_by_numbers(wants: str, version: str, fits: bool) -> None:
    assert fits_version(manifest("a", kaiwo=wants), version) is fits


def test_plugins_are_loaded_after_what_they_need() -> None:
    order, refused = load_order(
        {name: manifest(name, *needs) for name, needs in {"a": ["b"], "b": ["c"], "c": []}.items()}
    )
    assert (order, refused) == (["c", "b", "a"], {})


def test_a_circle_and_what_needs_it_are_refused() -> None:
    known = {"a": manifest("a", "b"), "b": manifest("b", "a"), "c": manifest("c", "a"), "d": manifest("d")}
    order, refused = load_order(known)
    assert order == ["d"]
    assert sorted(refused) == ["a", "b", "c"]
    assert "a > b > a" in refused["a"]


def test_a_plugin_that_needs_itself_or_something_unknown_is_refused() -> None:
    order, refused = load_order({"a": manifest("a", "a"), "b": manifest("b", "x")})
    assert order == []
    assert "depends on itself" in refused["a"]
    assert "needs the plugin 'x'" in refused["b"]


def test_those_who_need_a_plugin_are_found_through_others() -> None:
    assert dependents("a", [manifest("a"), manifest("b", "a"), manifest("c", "b"), manifest("d")]) == ["b", "c"]
