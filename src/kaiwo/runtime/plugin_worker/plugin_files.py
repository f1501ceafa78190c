"""Find plugins by entry point or folder, hash their files, and copy exactly what was hashed. Nothing is imported."""

import errno
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from kaiwo.model.errors import PluginError
from kaiwo.runtime.plugin_worker.plugin_manifest import MANIFEST, PluginManifest, read_manifest
from kaiwo.runtime.plugin_worker.plugin_manifest import MAX_BYTES as MAX_MANIFEST

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "kaiwo.plugins"
MAX_FILES, MAX_BYTES = 1_000, 32 << 20
IGNORED = ("__pycache__",)
OWN_MODULES = ("kaiwo", "numpy", "msgspec")  # that a plugin may import, besides Python's own and its own
_CODE = (".py", ".pth", ".so", ".pyc")


class FoundPlugin(NamedTuple):
    manifest: PluginManifest
    source: str  # `package NAME VERSION`, or the folder
    folder: Path  # of its package, with the manifest


def installed_plugins(reserved: Collection[str] = ()) -> tuple[list[FoundPlugin], list[str]]:
    """What installed packages announce; and what is wrong with those that cannot be used, or have a reserved name."""
    found: dict[str, FoundPlugin] = {}
    entries, problems = _entries()
    for entry in entries:
        try:
            plugin = _of_entry(entry)
        except PluginError as error:
            problems.append(str(error))
            continue
        except Exception as error:  # any package's metadata is read here, and the standard library raises what it likes
            problems.append(f"a package announces the plugin {entry.name!r:.80} and cannot be read: {error!r:.200}")
            continue
        if plugin.manifest.name in reserved:
            problems.append(f"{plugin.source}: Kaiwo has a plugin '{plugin.manifest.name}' of its own; rename this one")
            continue
        if plugin.manifest.name in found:
            problems.append(f"{plugin.source}: the plugin '{plugin.manifest.name}' is in another package, too")
            continue
        found[plugin.manifest.name] = plugin
    return [found[name] for name in sorted(found)], problems


def _entries() -> tuple[list["EntryPoint"], list[str]]:
    """One broken package hides only itself; of two folders with the same package, Python uses the first."""
    import importlib.metadata  # most installations have no plugins, and start without it

    found: dict[str, list[EntryPoint]] = {}
    problems = []
    for package in importlib.metadata.distributions():
        try:
            name = str(package.metadata["Name"]).lower()
            if name not in found:
                found[name] = list(package.entry_points.select(group=GROUP))
        except Exception as error:  # as above
            problems.append(f"the metadata of an installed package cannot be read: {error!r:.200}")
    return [entry for entries in found.values() for entry in entries], problems


def installed_plugin(name: str) -> FoundPlugin:
    found, problems = installed_plugins()
    for each in found:
        if each.manifest.name == name:
            return each
    known = ", ".join(each.manifest.name for each in found) or "none"
    raise PluginError(
        f"{name} is no folder, and no installed plugin has that name; installed are: {known}"
        + "".join(f"; {each}" for each in problems)
    )


def _of_entry(entry: "EntryPoint") -> FoundPlugin:
    package = entry.dist
    if package is None:
        raise PluginError(f"the entry point {entry.name!r:.80} belongs to no installed package")
    source = f"package {ascii(package.name)[1:-1]:.80} {ascii(package.version)[1:-1]:.60}"
    files = list(package.files or ())
    folders = {file.parent for file in files if file.name == MANIFEST}
    for file in files:
        if file.name == MANIFEST:
            path = Path(str(package.locate_file(file)))
            manifest = read_manifest(_read_file(path, MAX_MANIFEST), f"{source}: {MANIFEST}")
            if manifest.name == entry.name:
                _check_rest(source, files, folders)
                return FoundPlugin(manifest, source, path.parent)
    raise PluginError(
        f"{source} announces the plugin {entry.name!r:.80} and has no {MANIFEST} with that name; "
        "if it is installed in editable mode, give its folder as `path` instead"
    )


def _check_rest(source: str, files: Sequence[PurePosixPath], folders: Collection[PurePosixPath]) -> None:
    """A package has only the folder that is hashed: Python would import the rest of it, or run a .pth file whenever it
    starts, whatever an administrator allows."""
    for file in files:
        if file.suffix in _CODE and not any(folder in file.parents for folder in folders):
            raise PluginError(
                f"{source} also installs {ascii(str(file))[1:-1]:.120}, which no sha256 of a plugin covers; "
                "a plugin's package has only the folder with its manifest"
            )


def plugin_in(path: str) -> FoundPlugin:
    """The plugin in a folder: the package itself, or a project that has it in a sub-folder or under src/."""
    root = Path(path)
    # Kubernetes keeps the files of a mounted ConfigMap in hidden folders, and links lead there.
    places = [root / MANIFEST, *sorted(root.glob(f"[!.]*/{MANIFEST}")), *sorted(root.glob(f"src/[!.]*/{MANIFEST}"))]
    manifests = [place for place in places if place.is_file()]
    if not manifests:
        raise PluginError(f"{path} has no {MANIFEST}, neither in a sub-folder nor under src/; give a plugin's folder")
    if len(manifests) > 1:
        raise PluginError(f"{path} has {len(manifests)} plugins; give the folder of one: {_words(manifests[0].parent)}")
    folder = manifests[0].parent.resolve()
    if not str(folder).isprintable():
        raise PluginError(f"{_words(folder)} has a name that is no text; rename it")
    if manifests[0].is_symlink() and (manifests[0].parent / "..data").exists():
        raise PluginError(
            f"{_words(manifests[0])} is a link; a plugin's package must have its own files: "
            "give each item of a ConfigMap a `path` with the package's folder, such as my_rule/__init__.py"
        )
    manifest = read_manifest(_read_file(manifests[0], MAX_MANIFEST), _words(manifests[0]))
    return FoundPlugin(manifest, str(folder), folder)


class PluginFiles(NamedTuple):
    """The bytes of a plugin's files, by their path below the folder that has its package."""

    files: dict[str, bytes]
    package: str

    @property
    def manifest(self) -> PluginManifest:
        """From the bytes that were hashed: the file may have been another one when the plugin was found."""
        return read_manifest(self.files.get(f"{self.package}/{MANIFEST}", b""), f"{self.package}/{MANIFEST}")

    @property
    def sha256(self) -> str:
        """Over names, lengths and contents: neither a moved nor a renamed byte goes unnoticed."""
        whole = hashlib.sha256()
        for name in sorted(self.files):
            data = self.files[name]
            whole.update(f"{len(name.encode())} {name} {len(data)}\n".encode())
            whole.update(data)
        return whole.hexdigest()

    def write(self, target: Path) -> None:
        """Copy them into a new private folder, in place of what was there."""
        if target.exists():
            shutil.rmtree(target)
        target.mkdir(mode=0o700, parents=True)
        for name, data in self.files.items():
            path = target / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_bytes(data)


def read_files(plugin: FoundPlugin) -> PluginFiles:
    """All files of a plugin's package, without compiled ones. Links are refused: they could lead anywhere.

    Whatever lies there is read once, and no more of it than a plugin may have: a pipe, a device or a file of a terabyte
    must not stop the scheduler.
    """
    files: dict[str, bytes] = {}
    total = 0
    for folder, folders, names in os.walk(plugin.folder):
        folders[:] = sorted(each for each in folders if each not in IGNORED)
        for name in sorted([*folders, *names]):
            path = Path(folder) / name
            if path.is_symlink():
                raise PluginError(f"{_words(path)} is a link; a plugin's package must have its own files")
            if name in folders or name.endswith(".pyc"):
                continue
            data = _read_file(path, MAX_BYTES - total)
            total += len(data)
            inside = PurePosixPath(plugin.folder.name) / path.relative_to(plugin.folder)
            files[str(inside)] = data
            if len(files) > MAX_FILES:
                raise PluginError(f"{_words(plugin.folder)} has more than {MAX_FILES:,} files; a plugin is small")
    found = PluginFiles(files, plugin.folder.name)
    _check_object(found)
    return found


def _check_object(files: PluginFiles) -> None:
    """The hash must cover the code that the manifest names, and no other module may answer to that name."""
    module = files.manifest.object.partition(":")[0].partition(".")[0]
    if module != files.package:
        raise PluginError(
            f"its object is in the module '{module}', and its files are those of the package {files.package!a}; "
            "name an object of that package"
        )
    if module in sys.stdlib_module_names or module in OWN_MODULES:
        raise PluginError(f"its package '{module}' has the name of another module; rename it")


def _read_file(path: Path, most: int) -> bytes:
    """A plain file of at most so many bytes. Opening a pipe does not wait for its other end."""
    try:
        str(path).encode()
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except UnicodeEncodeError as error:
        raise PluginError(f"{_words(path)} has a name that is no text; rename it") from error
    except OSError as error:
        words = "is a link" if error.errno == errno.ELOOP else f"cannot be read ({error.strerror})"
        raise PluginError(f"{_words(path)} {words}; a plugin's package must have its own files") from error
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise PluginError(f"{_words(path)} is no plain file; a plugin's package must have its own files")
        data = file.read(most + 1)
    if len(data) > most:
        raise PluginError(f"{_words(path)} is too large; a plugin has at most {MAX_BYTES >> 20} MiB in all")
    return data


def _words(path: Path) -> str:
    return ascii(str(path))[1:-1][:200]
