"""The core reads no clock, draws no random number and does no I/O.

import-linter sees imports; this looks at the code itself, for what needs no import or hides behind a harmless one.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCE = ROOT / "src" / "kaiwo"
PURE = ("model", "snapshot", "queues", "gpus", "topology", "plugins", "decide", "explain", "forecast", "advise")
CONTRACT = next(
    contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    if contract["type"] == "forbidden"
)
MODULES = frozenset(CONTRACT["forbidden_modules"])
BUILTINS = frozenset({"open", "print", "input", "breakpoint", "exec", "eval", "__import__"})
# What a harmless module offers all the same: the last two names of a dotted name.
CALLS = frozenset(
    {
        *(f"{owner}.{name}" for owner in ("datetime", "date") for name in ("now", "utcnow", "today")),
        *(f"uuid.{name}" for name in ("uuid1", "uuid4", "getnode")),
        *(f"{owner}.random" for owner in ("np", "numpy")),
        *(f"{owner}.{name}" for owner in ("np", "numpy") for name in ("load", "save", "savez", "loadtxt", "savetxt")),
        *(f"sys.{name}" for name in ("argv", "stdin", "stdout", "stderr", "exit")),
    }
)


def impurities(code: str) -> list[str]:
    """Every impure thing in the code, as 'line: what'."""
    tree = ast.parse(code)
    found = [(node.lineno, what) for node in ast.walk(tree) if hasattr(node, "lineno") for what in _impure(node)]
    found += [(line, "hash() outside __hash__ differs between processes") for line in _loose_hashes(tree)]
    return [f"{line}: {what}" for line, what in sorted(found)]


def _impure(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (f"import {alias.name}" for alias in names if alias.name.split(".")[0] in MODULES)
        case ast.ImportFrom(module=str(module), level=0, names=names):
            if module.split(".")[0] in MODULES:
                yield f"from {module} import ..."
            yield from (f"from {module} import {alias.name}" for alias in names if f"{module}.{alias.name}" in CALLS)
        case ast.Attribute():
            dotted = ast.unparse(node)
            if ".".join(dotted.split(".")[-2:]) in CALLS:
                yield dotted
        case ast.Call(func=ast.Name(id=name)) if name in BUILTINS:
            yield f"{name}()"


def _loose_hashes(tree: ast.AST) -> Iterator[int]:
    """Text hashes differently in each process, so a hash may serve dicts but never an order."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef) and child.name == "__hash__":
            continue
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == "hash":
            yield child.lineno
        yield from _loose_hashes(child)


PURE_FOLDERS = [SOURCE / name for name in PURE if (SOURCE / name).is_dir()]


@pytest.mark.parametrize("folder", PURE_FOLDERS, ids=lambda folder: folder.name)
def test_the_core_is_pure(folder: Path) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{impurity}"
        for path in sorted(folder.rglob("*.py"))
        for impurity in impurities(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_pure_folder_is_in_the_import_contract() -> None:
    assert set(CONTRACT["source_modules"]) == {f"kaiwo.{folder.name}" for folder in PURE_FOLDERS}


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "import os.path",
        "from random import choice",
        "from numpy import random",
        "def f():\n    import socket",
        "datetime.now()",
        "datetime.datetime.now(tz)",
        "clock = datetime.datetime.utcnow",
        "date.today()",
        "np.random.default_rng(0)",
        "uuid.uuid4()",
        "from uuid import uuid4",
        "open('x')",
        "print('x')",
        "sys.argv[1]",
        "from os import environ",
        "sorted(names, key=lambda name: hash(name))",
    ],
)
def test_impure_code_is_found(code: str) -> None:
    assert impurities(code)


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np\nnp.lexsort((a, b))",
        "from datetime import datetime, timedelta\ndatetime.fromisoformat(text)",
        "snapshot.time_s + workload.now_s",
        "gate.open()",
        "class A:\n    def __hash__(self):\n        return hash((self.a, self.b))",
        "from kaiwo.model.time import x",
        "from .random import x",
    ],
)
def test_pure_code_is_left_alone(code: str) -> None:
    assert impurities(code) == []
