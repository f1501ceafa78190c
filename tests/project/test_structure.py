"""The house keeps its shape: folders and classes of a size that one can survey, typed seams, walls without gaps."""

import ast
import re
import tomllib
from collections import Counter

from tests.conftest import ROOT

SOURCE = ROOT / "src" / "kaiwo"
MODULES = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
MAX_FILES, MAX_METHODS = 25, 20
UNTYPED = re.compile(r"cluster: Any|signature\[|isinstance\([a-z_.]*, *(Embedded|Local|Kubernetes)")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def test_no_folder_has_too_many_files() -> None:
    sizes = Counter(name.rpartition("/")[0] for name in MODULES)
    large = {folder: size for folder, size in sizes.items() if size > MAX_FILES}
    assert not large, f"more than {MAX_FILES} .py files in {large}; divide it into rooms, with an import contract"


def test_no_class_has_too_many_public_methods() -> None:
    classes = [
        (name, node)
        for name, text in MODULES.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    ]
    known = {node.name: node for _, node in classes}
    large = {f"{name}: {node.name}": len(_public_methods(node, known)) for name, node in classes}
    large = {place: count for place, count in large.items() if count > MAX_METHODS}
    assert not large, f"more than {MAX_METHODS} public methods (with those of base classes) in {large}; split the class"


def _public_methods(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> set[str]:
    own = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    bases = [known[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in known]
    inherited = {name for base in bases if base is not node for name in _public_methods(base, known)}
    return {name for name in own if not name.startswith("_")} | inherited


def test_no_seam_is_untyped() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in MODULES.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if UNTYPED.search(line)
    ]
    assert not found, "take a Cluster or one of its abilities, and give positions names:\n" + "\n".join(found)


def test_every_module_inside_a_divided_folder_has_its_layer() -> None:
    layers = [contract for contract in CONTRACTS if contract["type"] == "layers"]
    open_ = [each["name"] for each in layers if each["containers"] != ["kaiwo"] and not each.get("exhaustive")]
    assert not open_, f"add `exhaustive = true` in pyproject.toml to the contracts {open_}"


def test_no_import_contract_has_an_exception() -> None:
    lenient = [each["name"] for each in CONTRACTS if each.get("ignore_imports") or each.get("exhaustive_ignores")]
    assert not lenient, f"move what is imported to a lower layer instead of ignoring it in {lenient}"
