"""Runs tests against one mutant in a child process that has everything imported already.

In:    a mutant and the tests that reach it, quickest first.   Out: whether one of them fails or never ends.
The child gets the mutated function's code in place of the original, so that nothing has to be imported again; where
the mistake is outside of functions, it imports the source tree anew.
"""

import contextlib
import importlib
import importlib.abc
import importlib.util
import os
import resource
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.mutants.mutate import Mutant

NOTICED_LATE_S = 300  # of CPU: a mutant that hangs is noticed, too
MAX_BYTES = 4 << 30  # and one that fills the memory
STORIES = "tests/decisions/"  # nine of ten mutants die there
NEXT = 60  # of the other tests, the quickest


def preload() -> None:
    """Import once what every child needs."""
    for name in ("hypothesis", "tests.worlds", "tests.decisions.fingerprints", "kaiwo.explain"):
        importlib.import_module(name)


def is_killed(path: Path, mutant: Mutant, tests: list[str]) -> bool:
    """Some of the tests fail, or do not come to an end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (NOTICED_LATE_S, NOTICED_LATE_S))
            resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            code = int(_fails(path, mutant, tests))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status != 0


def _fails(path: Path, mutant: Mutant, tests: list[str]) -> bool:
    _install(path, mutant)
    stories = [test for test in tests if test.startswith(STORIES)]
    others = [test for test in tests if not test.startswith(STORIES)]
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={ROOT}"]
    return any(pytest.main([*options, *some]) != 0 for some in (stories, others[:NEXT], others[NEXT:]) if some)


def _install(path: Path, mutant: Mutant) -> None:
    text = mutant.apply(path.read_text())
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    code = compile(text, str(path), "exec")
    if mutant.function and _replace_code(importlib.import_module(name), mutant.function, code):
        return
    for module in [module for module in sys.modules if module.split(".")[0] in ("kaiwo", "tests")]:
        del sys.modules[module]
    sys.meta_path.insert(0, _Finder(name, path, code))


def _replace_code(module: ModuleType, name: str, code: CodeType) -> bool:
    for part in name.split("."):
        code = next(each for each in _inner(code) if each.co_name == part)
    holder: Any = module
    *classes, last = name.split(".")
    for part in classes:
        holder = getattr(holder, part)
    found = vars(holder)[last]
    for wrapper, field in ((property, "fget"), (cached_property, "func"), (staticmethod | classmethod, "__func__")):
        if isinstance(found, wrapper):
            found = getattr(found, field)
    if not isinstance(found, FunctionType) or hasattr(found, "__wrapped__"):
        return False
    with contextlib.suppress(ValueError):  # other names of outer functions are used
        found.__code__ = code
        return True
    return False


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (each for each in code.co_consts if isinstance(each, CodeType))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with its mistake."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self._name, self._path, self._code = name, path, code

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, vars(module))
