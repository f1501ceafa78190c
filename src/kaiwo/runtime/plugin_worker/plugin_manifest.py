"""The manifest of a plugin, `kaiwo-plugin.toml` in its package: read without running any of its code.

name = "prefer-cheap-nodes"
version = "1.0.0"
kinds = ["score"]
object = "prefer_cheap_nodes:PreferCheapNodes"
kaiwo = ">=0.1"
dependencies = []
description = "Prefers nodes with a low price label."
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from kaiwo.model.errors import PluginError
from kaiwo.plugins.guarded_calls import one_line
from kaiwo.plugins.registry import ALL_POINTS

MANIFEST = "kaiwo-plugin.toml"
MAX_BYTES = 64 << 10
NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"  # of the whole name; ASCII only, so that no two look alike
MAX_DESCRIPTION, MAX_DEPENDENCIES = 300, 50
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,59}")  # it is shown to people, and a part of the journal
_OBJECT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_BOUND = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d{1,9}(?:\.\d{1,9}){0,7})", re.ASCII)


class PluginManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    version: str
    kinds: tuple[str, ...]  # the points that it serves
    object: str  # `module:attribute`, a class or an instance
    kaiwo: str = ""  # required version, such as ">=0.1,<2"; empty: any
    dependencies: tuple[str, ...] = ()  # names of plugins that must be active
    description: str = ""


def read_manifest(text: bytes, where: str) -> PluginManifest:
    """Raises PluginError for a manifest that is not right."""
    import tomllib  # most installations have no plugins, and start without it

    if len(text) > MAX_BYTES:
        raise PluginError(f"{where} is longer than {MAX_BYTES:,} bytes; a manifest is a few lines")
    try:
        found = msgspec.convert(tomllib.loads(text.decode()), PluginManifest)
    except (ValueError, RecursionError) as error:
        words = one_line(str(error), MAX_DESCRIPTION)  # it names fields, and they are a stranger's
        raise PluginError(f"{where} is not a manifest: {words}; docs/plugins.md has an example") from error
    if not re.fullmatch(NAME, found.name):
        raise PluginError(f"{where}: name is {found.name!r:.80}; use lower-case letters, digits and '-'")
    if not _OBJECT.fullmatch(found.object):
        raise PluginError(f"{where}: object is {found.object!r:.80}; write it as module:Class")
    unknown = [kind for kind in found.kinds if kind not in ALL_POINTS]
    if unknown or not found.kinds:
        wrong = f"names the kind {unknown[0]!r:.40}" if unknown else "names no kind"
        raise PluginError(f"{where} {wrong}; there are: {', '.join(ALL_POINTS)}")
    if len(set(found.kinds)) < len(found.kinds):
        raise PluginError(f"{where} names a kind twice; name each once")
    if not _VERSION.fullmatch(found.version):
        raise PluginError(f'{where}: version is {found.version!r:.80}; write one such as "1.0.0"')
    if len(found.description) > MAX_DESCRIPTION or not found.description.isprintable():
        raise PluginError(f"{where} has a description that is not one line of at most {MAX_DESCRIPTION} characters")
    if len(found.dependencies) > MAX_DEPENDENCIES:
        raise PluginError(f"{where} has {len(found.dependencies)} dependencies; {MAX_DEPENDENCIES} is the most")
    if wrong_names := [name for name in found.dependencies if not re.fullmatch(NAME, name)]:
        raise PluginError(f"{where} depends on {wrong_names[0]!r:.80}; use the names of plugins")
    _bounds(found.kaiwo, where)
    return found


def fits_version(manifest: PluginManifest, version: str) -> bool:
    """Whether the plugin is meant for this version of Kaiwo."""
    have = _numbers(version)
    for sign, number in _bounds(manifest.kaiwo, manifest.name):
        want = _numbers(number)
        width = max(len(have), len(want))
        ours, theirs = _padded(have, width), _padded(want, width)
        verdicts = {
            ">=": ours >= theirs, "<=": ours <= theirs, "==": ours == theirs, "!=": ours != theirs,
            ">": ours > theirs, "<": ours < theirs,
        }  # fmt: skip
        if not verdicts[sign]:
            return False
    return True


def load_order(manifests: Mapping[str, PluginManifest]) -> tuple[list[str], dict[str, str]]:
    """Names in an order in which each comes after what it depends on; and why others cannot be loaded."""
    order: list[str] = []
    refused: dict[str, str] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in order or name in refused:
            return
        if name in path:
            circle = " > ".join((*path[path.index(name) :], name))
            refused[name] = f"depends on itself ({circle}); remove one of these dependencies"
            return
        for other in manifests[name].dependencies:
            if other not in manifests:
                refused[name] = f"needs the plugin '{other}', which is not allowed or not found; allow it, too"
                return
            visit(other, (*path, name))
            if other in refused:
                refused.setdefault(name, f"needs the plugin '{other}', which cannot be loaded")
        if name not in refused:
            order.append(name)

    for name in sorted(manifests):
        visit(name, ())
    return order, refused


def dependents(name: str, manifests: Iterable[PluginManifest]) -> list[str]:
    """The plugins that need this one, directly or through others."""
    known, found, open_ = list(manifests), set[str](), [name]
    while open_:
        needed = open_.pop()
        new = {each.name for each in known if needed in each.dependencies} - found
        found |= new
        open_ += sorted(new)
    return sorted(found)


def _bounds(text: str, where: str) -> list[tuple[str, str]]:
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _BOUND.fullmatch(part)
        if match is None:
            raise PluginError(f'{where}: kaiwo is {text!r:.60}; write a version range such as ">=0.1,<2"')
        found.append((match[1], match[2]))
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*", version)[0].split("."))  # type: ignore[index]


def _padded(numbers: tuple[int, ...], width: int) -> tuple[int, ...]:
    return numbers + (0,) * (width - len(numbers))
