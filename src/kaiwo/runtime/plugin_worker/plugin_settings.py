"""The file in which an administrator allows plugins: `kaiwo up --plugins FILE`.

    plugins:
      - name: prefer-cheap-nodes
        sha256: 5d0c...            # of its files: kaiwo plugins info prefer-cheap-nodes
        config: {label: price}
      - name: own-rules
        path: /opt/kaiwo/own-rules # a folder instead of an installed package
        sha256: 81fe...
        run: trusted               # inside the scheduler, without limits

In:    YAML text.   Out: one PluginSetting for each plugin. What is not listed is never imported.
"""

import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from kaiwo.manifests.text.read_documents import read_single
from kaiwo.model.errors import ConfigError
from kaiwo.runtime.plugin_worker.confinement import MEMORY_MIB
from kaiwo.runtime.plugin_worker.plugin_manifest import NAME

DEADLINE_MS = 100
_SHA256 = re.compile(r"[0-9a-f]{64}")


class PluginSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    name: str
    sha256: str = ""  # required for plugins that did not come with Kaiwo
    path: str = ""  # empty: an installed package
    run: Literal["confined", "trusted"] = "confined"
    enabled: bool = True
    deadline_ms: int = DEADLINE_MS  # for one answer
    memory_mib: int = MEMORY_MIB
    config: dict[str, Any] = {}
    file: str = ""  # whose text a topology source gets
    deliver_to: str = ""  # a URL to which Kaiwo posts the messages of a notification


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    plugins: tuple[PluginSetting, ...]


def read_plugin_settings(path: str) -> tuple[PluginSetting, ...]:
    """Without a path, none. Raises ConfigError for a file that is not right."""
    if not path:
        return ()
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); name a file that allows plugins") from error
    fields = read_single(text, path, "write all plugins in one", "plugins: []")
    try:
        found = msgspec.convert(fields, _File).plugins
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}; docs/plugins.md has an example") from error
    seen: set[str] = set()
    for each in found:
        _check(each, path)
        if each.name in seen:
            raise ConfigError(f"{path} lists the plugin '{each.name}' twice; remove one of them")
        seen.add(each.name)
    return found


def _check(setting: PluginSetting, path: str) -> None:
    where = f"{path}: plugin '{setting.name}'"
    if not re.fullmatch(NAME, setting.name):
        raise ConfigError(f"{path}: a plugin is called {setting.name!r:.80}; use lower-case letters, digits and '-'")
    if setting.sha256 and not _SHA256.fullmatch(setting.sha256):
        raise ConfigError(f"{where} has no valid sha256; `kaiwo plugins check` prints that of a plugin's files")
    if setting.path and not Path(setting.path).is_absolute():
        raise ConfigError(f"{where} has the path {setting.path!r:.80}; write an absolute one")
    if setting.file and not Path(setting.file).is_absolute():
        raise ConfigError(f"{where} has the file {setting.file!r:.80}; write an absolute path")
    if setting.deliver_to and not setting.deliver_to.startswith(("http://", "https://")):
        raise ConfigError(f"{where} delivers to {setting.deliver_to!r:.80}; write a URL that begins with https://")
    if not 1 <= setting.deadline_ms <= 10_000:
        raise ConfigError(f"{where} has a deadlineMs of {setting.deadline_ms}; choose from 1 to 10000")
    if not 16 <= setting.memory_mib <= 65_536:
        raise ConfigError(f"{where} has a memoryMib of {setting.memory_mib}; choose from 16 to 65536")
