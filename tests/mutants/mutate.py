"""Random mutants of the pure core: one small mistake each, made from the syntax tree.

In:    source text and a random number generator.   Out: where a mistake can be made, and the text with it.
The kinds: a changed comparison, constant, sign or connective, and a dropped statement.
"""

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


class Mutant(NamedTuple):
    """One mistake in one file."""

    line: int
    kind: str
    before: str
    after: str
    text: str  # the whole file with the mistake in it


def mutants_of(text: str) -> Iterator[Mutant]:
    """Every mistake that can be made in a file."""
    tree = ast.parse(text)
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.AnnAssign) and node.value is None:
            continue
        for kind, changed in _changes(node):
            yield from _applied(tree, text, number, node, kind, changed)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            for other in COMPARISONS[type(operator)]:
                yield "comparison", _with(node, ops=[other()])
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield "constant", ast.Constant(value + 1)
        case ast.BinOp(op=operator) if type(operator) in OPERATORS and not _is_text(node):
            yield "sign", _with(node, op=OPERATORS[type(operator)]())
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield "sign", operand
        case ast.BoolOp(op=ast.And()):
            yield "connective", _with(node, op=ast.Or())
        case ast.BoolOp(op=ast.Or()):
            yield "connective", _with(node, op=ast.And())
        case ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break():
            yield "dropped", ast.Pass()
        case ast.Expr(value=ast.Call()):
            yield "dropped", ast.Pass()


def _with(node: ast.AST, **changes: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def _is_text(node: ast.BinOp) -> bool:
    """Types and texts are joined by the same signs as numbers."""
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr | ast.Tuple | ast.List)
        or (isinstance(side, ast.Constant) and not isinstance(side.value, int))
        or (isinstance(node.op, ast.BitOr) and isinstance(side, ast.Name) and side.id in ("str", "int", "bool"))
        for side in sides
    )


def _applied(
    tree: ast.Module, text: str, number: int, node: ast.AST, kind: str, changed: ast.AST | None
) -> Iterator[Mutant]:
    before = ast.get_source_segment(text, node)
    if changed is None or before is None or not isinstance(node, ast.stmt | ast.expr):
        return
    after = ast.unparse(ast.fix_missing_locations(changed))
    if isinstance(node, ast.expr):
        after = f"({after})"
    lines = text.split("\n")
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset :].decode()
    lines[first : last + 1] = [head + after + tail]
    mutated = "\n".join(lines)
    try:
        ast.parse(mutated)
    except SyntaxError:
        return  # inside an f-string, or where a name is bound
    yield Mutant(node.lineno, kind, before, after, mutated)
