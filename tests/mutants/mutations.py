"""What can be changed in a module: one small change each, told by the function and the line that it is in."""

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_COMPUTED: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//",
}  # fmt: skip
_TELLING = ("log", "_log", "logger", "warnings")
"""A dropped call of these is seen by people alone."""


class Mutant(NamedTuple):
    """One change of one place. Lines move, so the place is its function, its line as text, and which such line."""

    path: str
    function: str
    line: str
    nth: int
    """Among the equal lines of the function."""
    column: int
    """Of the change, counted in UTF-8 bytes from the line's first word."""
    kind: str
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.function}: `{self.line}`, {self.kind}: `{self.before}` -> `{self.after}`"


class _Edit(NamedTuple):
    function: str
    start: int
    end: int
    kind: str
    after: str


def mutants(path: str, source: str) -> list[Mutant]:
    text = _Text(source)
    return [text.mutant(path, edit) for edit in text.edits()]


def mutated(mutant: Mutant, source: str) -> str | None:
    """`source` with the change; None if the place is not in it any more."""
    text = _Text(source)
    for edit in text.edits():
        if text.mutant(mutant.path, edit) == mutant:
            return (text.bytes[: edit.start] + edit.after.encode() + text.bytes[edit.end :]).decode()
    return None


class _Text:
    """A module as bytes, which is how `ast` counts columns."""

    def __init__(self, source: str) -> None:
        self.bytes = source.encode()
        self.lines = self.bytes.splitlines(keepends=True)
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))
        self._functions = dict[str, tuple[int, int]]()  # first and last line, from 0
        self._tree = ast.parse(source)

    def edits(self) -> list[_Edit]:
        return sorted(
            set(self._within(self._tree, "", inside=False)), key=lambda edit: (edit.start, edit.end, edit.after)
        )

    def mutant(self, path: str, edit: _Edit) -> Mutant:
        number = next(at for at, start in enumerate(self._starts) if start > edit.start) - 1
        first, _ = self._functions[edit.function]
        line = self.lines[number].strip()
        column = edit.start - self._starts[number] - (len(self.lines[number]) - len(self.lines[number].lstrip()))
        nth = sum(other.strip() == line for other in self.lines[first:number])
        before = self.bytes[edit.start : edit.end].decode()
        return Mutant(path, edit.function, line.decode(), nth, column, edit.kind, before, edit.after)

    def _within(self, node: ast.AST, function: str, inside: bool) -> Iterator[_Edit]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
            inside = not isinstance(node, ast.ClassDef)
            self._functions[function] = (node.lineno - 1, (node.end_lineno or node.lineno) - 1)
            children = node.body  # a default or an annotation is a matter of settings and types
        else:
            if inside:
                yield from self._of(node, function)
            # Before Python 3.12 what is within an f-string does not know its place.
            children = () if isinstance(node, ast.JoinedStr) else ast.iter_child_nodes(node)
        for child in children:
            yield from self._within(child, function, inside)

    def _of(self, node: ast.AST, function: str) -> Iterator[_Edit]:
        match node:
            case ast.Compare(left=left, ops=[op, *_], comparators=[right, *_]):
                yield self._between(function, left, right, "operator", _COMPARED[type(op)])
            case ast.BoolOp(op=op, values=[left, right, *_]):
                yield self._between(function, left, right, "operator", "or" if isinstance(op, ast.And) else "and")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTED:
                yield self._between(function, left, right, "operator", _COMPUTED[type(op)])
            case ast.Constant(value=bool(value)):
                yield self._at(function, node, "constant", str(not value))
            case ast.Constant(value=int() | float() as value):
                yield self._at(function, node, "constant", str(value + 1))
            case ast.If(test=test) | ast.IfExp(test=test):
                yield self._at(function, test, "branch", f"(not ({self._said(test)}))")
            case ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.Await(value=ast.Call() as call)):
                if not _telling(call):
                    yield self._at(function, node, "dropped call", "pass")
            case _:
                return

    def _at(self, function: str, node: ast.AST, kind: str, after: str) -> _Edit:
        return _Edit(function, *self._span(node), kind, after)

    def _between(self, function: str, left: ast.AST, right: ast.AST, kind: str, after: str) -> _Edit:
        """The operator itself: parentheses around its operands stay where they are."""
        start, end = self._span(left)[1], self._span(right)[0]
        between = self.bytes[start:end]
        opened, closed = between.find(b"("), between.rfind(b")")
        if opened >= 0:
            end = start + opened
        if closed >= 0:
            start += closed + 1
        return _Edit(function, start, end, kind, f" {after} ")

    def _span(self, node: Any) -> tuple[int, int]:
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _said(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.bytes[start:end].decode()


def _telling(call: ast.Call) -> bool:
    said = call.func
    while isinstance(said, ast.Attribute):
        if said.attr in _TELLING:
            return True
        said = said.value
    return isinstance(said, ast.Name) and said.id in _TELLING
