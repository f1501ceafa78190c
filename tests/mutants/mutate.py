"""Random mutants of the pure core: one small mistake each, made from the syntax tree.

In:    source text.   Out: where a mistake can be made, and the text with it.
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


# Declarations: `gc` and `slots` are about memory alone; what `frozen` refuses, the type checker refuses already; and
# `strict` of zip says that the lengths agree, so without it nothing changes.
DECLARATIONS = ("gc", "slots", "frozen", "strict")


class Mutant(NamedTuple):
    """One mistake in one file."""

    line: int
    function: str  # the outermost function or method that it is in; empty where it runs when the module is imported
    kind: str
    code: str  # the line before the mistake
    before: str
    after: str
    span: tuple[int, int, int, int]

    def apply(self, text: str) -> str:
        """The whole file with the mistake in it."""
        lines = text.split("\n")
        first, start, last, end = self.span
        head, tail = lines[first].encode()[:start].decode(), lines[last].encode()[end:].decode()
        lines[first : last + 1] = [head + self.after + tail]
        return "\n".join(lines)


def mutants_of(text: str) -> Iterator[Mutant]:
    """Every mistake that can be made in a file."""
    lines = text.split("\n")
    for node, function in _nodes(ast.parse(text), "", is_inside=False):
        for kind, changed in _changes(node):
            before = ast.get_source_segment(text, node)
            if before is None or not isinstance(node, ast.stmt | ast.expr):
                continue
            after = ast.unparse(ast.fix_missing_locations(changed))
            after = f"({after})" if isinstance(node, ast.expr) else after
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            span = (first, node.col_offset, last, node.end_col_offset or 0)
            yield Mutant(node.lineno, function, kind, lines[first].strip(), before, after, span)


def _nodes(node: ast.AST, name: str, *, is_inside: bool) -> Iterator[tuple[ast.AST, str]]:
    """Every node that may be changed, with the function whose body it is in."""
    yield node, name if is_inside else ""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or field in ("annotation", "returns") or isinstance(node, ast.JoinedStr):
                continue
            if isinstance(child, ast.keyword) and child.arg in DECLARATIONS:
                continue
            inner, is_body = name, is_inside
            if not is_inside and isinstance(node, ast.ClassDef | ast.FunctionDef):
                inner = f"{name}.{node.name}".lstrip(".")
                is_body = isinstance(node, ast.FunctionDef) and field == "body"
            yield from _nodes(child, inner, is_inside=is_body)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
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
