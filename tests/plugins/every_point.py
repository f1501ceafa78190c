"""One plugin for each point, from the examples of the guide, as folders that an administrator allows."""

from pathlib import Path
from typing import Any

import yaml

from kaiwo.plugins.registry import ALL_POINTS, check_plugin
from kaiwo.runtime.plugin_worker.plugin_files import plugin_in, read_files
from tests.conftest import ROOT
from tests.docs.markdown import blocks

# What the point is when the example would answer by the day of the week.
ANSWERS = {"permit": "return [ALLOWED for _ in placements]"}


def examples() -> tuple[str, dict[str, str]]:
    """The code of the guide, and by point the class that serves it."""
    (block,) = blocks(ROOT / "docs" / "plugins.md", "points")
    module: dict[str, Any] = {"__name__": "examples"}
    exec(block.text, module)
    classes = [value for value in module.values() if isinstance(value, type) and value.__module__ == "examples"]
    return block.text, {point: cls.__name__ for cls in classes for point in check_plugin(cls())}


def write_all(home: Path, run: str) -> Path:
    """The file that allows them all; a plugin is named after its point."""
    text, class_of = examples()
    allowed = []
    for point in ALL_POINTS:
        name, folder = point.replace("_", "-"), home / "code" / point / f"only_{point}"
        folder.mkdir(parents=True)
        others = [f"    {other} = None" for other in ALL_POINTS if other != point]
        own = [f"    def {point}(self, placements, now_s):", f"        {ANSWERS[point]}"] if point in ANSWERS else []
        lines = ["class Only(" + class_of[point] + "):", f'    name, version = "{name}", "1"', *others, *own]
        (folder / "__init__.py").write_text("\n".join([text, "", *lines, ""]))
        (folder / "kaiwo-plugin.toml").write_text(
            f'name = "{name}"\nversion = "1"\nkinds = ["{point}"]\nobject = "only_{point}:Only"\n'
        )
        sha256 = read_files(plugin_in(str(folder))).sha256
        allowed.append({"name": name, "path": str(folder), "sha256": sha256, "run": run, "deadlineMs": 5_000})
    file = home / "plugins.yaml"
    file.write_text(yaml.safe_dump({"plugins": allowed}))
    return file


POLICY = "gpuStrategy: allocation\nreplicaStrategy: replica-strategy\n"
