"""One name has one meaning: a class name stands for one thing in the whole source."""

import ast
from collections import defaultdict

from tests.conftest import ROOT

SAME_THING_IN_TWO_FORMS = {
    "Container": "as the API server sends it to the scheduler, and as the kubelet reports it to the agent",
    "Node": "as the API server sends it, and in the model",
    "Pod": "as the API server sends it, and in the model",
    "PodAffinity": "as the API server sends it, and in the model",
    "Toleration": "as the API server sends it, and in the model",
    "ServerFile": "as the server writes it, and as the CLI reads it, which imports nothing of the server",
}


def test_no_two_public_classes_have_the_same_name() -> None:
    where = defaultdict(list)
    for path in sorted((ROOT / "src/kaiwo").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: paths for name, paths in where.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in SAME_THING_IN_TWO_FORMS} == {}
    assert sorted(SAME_THING_IN_TWO_FORMS) == sorted(twice)
