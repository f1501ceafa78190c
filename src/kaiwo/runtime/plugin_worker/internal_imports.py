"""Which of Kaiwo's internals a plugin's code imports: they may change with every version, `kaiwo.plugins` does not.

In:    the files of a plugin, as text.   Out: names of modules. Nothing is imported.
"""

import ast
from collections.abc import Iterator, Mapping

PUBLIC = ("kaiwo.plugins", "kaiwo.plugins.testing")


def internal_imports(files: Mapping[str, bytes]) -> list[str]:
    """Each with the file that imports it. A file that is no Python says so itself when it is loaded."""
    found = set()
    for name, data in files.items():
        if not name.endswith(".py"):
            continue
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        found |= {f"{module} in {name}" for module in _modules(tree) if _is_internal(module)}
    return sorted(found)


def _modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            if node.module == "kaiwo":
                yield from (f"kaiwo.{each.name}" for each in node.names)
            elif node.module == "kaiwo.plugins":  # a module below it is not one of its names
                yield from (f"kaiwo.plugins.{each.name}" for each in node.names if each.name in _MODULES)


_MODULES = ("builtin", "contract", "edge_contract", "guarded_calls", "registry", "replica_division")


def _is_internal(module: str) -> bool:
    return module.split(".")[0] == "kaiwo" and module not in PUBLIC and module != "kaiwo"
