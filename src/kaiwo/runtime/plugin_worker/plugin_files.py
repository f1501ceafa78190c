"""Find plugins by entry point or folder, hash their files, and copy exactly what was hashed. Nothing is imported."""

import hashlib
import importlib.metadata
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from kaiwo.model.errors import PluginError
from kaiwo.runtime.plugin_worker.plugin_manifest import MANIFEST, PluginManifest, read_manifest

GROUP = "kaiwo.plugins"
MAX_FILES, MAX_BYTES = 1_000, 32 << 20
IGNORED = ("__pycache__",)


class FoundPlugin(NamedTuple):
    manifest: PluginManifest
    source: str  # `package NAME VERSION`, or the folder
    folder: Path  # of its package, with the manifest


def installed_plugins() -> tuple[list[FoundPlugin], list[str]]:
    """What installed packages announce; and what is wrong with those that cannot be read."""
    found: dict[str, FoundPlugin] = {}
    problems = []
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            plugin = _of_entry(entry)
        except (PluginError, OSError) as error:
            problems.append(str(error))
            continue
        if plugin.manifest.name in found:
            problems.append(f"{plugin.source}: the plugin '{plugin.manifest.name}' is in another package, too")
            continue
        found[plugin.manifest.name] = plugin
    return [found[name] for name in sorted(found)], problems


def _of_entry(entry: importlib.metadata.EntryPoint) -> FoundPlugin:
    package = entry.dist
    if package is None:
        raise PluginError(f"the entry point '{entry.name}' belongs to no installed package")
    source = f"package {package.name} {package.version}"
    for file in package.files or ():
        if file.name == MANIFEST:
            path = Path(str(package.locate_file(file)))
            manifest = read_manifest(path.read_bytes(), f"{source}: {MANIFEST}")
            if manifest.name == entry.name:
                return FoundPlugin(manifest, source, path.parent)
    raise PluginError(
        f"{source} announces the plugin '{entry.name}' and has no {MANIFEST} with that name; "
        "if it is installed in editable mode, give its folder as `path` instead"
    )


def plugin_in(path: str) -> FoundPlugin:
    """The plugin in a folder: the package itself, or a project that has it in a sub-folder or under src/."""
    root = Path(path)
    places = [root / MANIFEST, *sorted(root.glob(f"*/{MANIFEST}")), *sorted(root.glob(f"src/*/{MANIFEST}"))]
    manifests = [place for place in places if place.is_file()]
    if not manifests:
        raise PluginError(f"{path} has no {MANIFEST}, neither in a sub-folder nor under src/; give a plugin's folder")
    if len(manifests) > 1:
        raise PluginError(f"{path} has {len(manifests)} plugins; give the folder of one: {manifests[0].parent}")
    folder = manifests[0].parent.resolve()
    return FoundPlugin(read_manifest(manifests[0].read_bytes(), str(manifests[0])), str(folder), folder)


class PluginFiles(NamedTuple):
    """The bytes of a plugin's files, by their path below the folder that has its package."""

    files: dict[str, bytes]

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
            path.write_bytes(data)


def read_files(plugin: FoundPlugin) -> PluginFiles:
    """All files of a plugin's package, without compiled ones. Links are refused: they could lead anywhere."""
    files: dict[str, bytes] = {}
    total = 0
    for folder, folders, names in os.walk(plugin.folder):
        folders[:] = sorted(each for each in folders if each not in IGNORED)
        for name in sorted([*folders, *names]):
            path = Path(folder) / name
            if path.is_symlink():
                raise PluginError(f"{path} is a link; a plugin's package must have its own files")
            if name in folders or name.endswith(".pyc"):
                continue
            data = path.read_bytes()
            total += len(data)
            inside = PurePosixPath(plugin.folder.name) / path.relative_to(plugin.folder)
            files[str(inside)] = data
            if len(files) > MAX_FILES or total > MAX_BYTES:
                raise PluginError(
                    f"{plugin.folder} has more than {MAX_FILES:,} files or {MAX_BYTES >> 20} MiB; a plugin is small"
                )
    return PluginFiles(files)
