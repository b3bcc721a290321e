"""Reads index expressions as `dims.format_dim` writes them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tracegrad.dims import Dim, Expr, add, floordiv, mod, mul


def parse_dim(text: str, symbol_of: Mapping[str, Expr]) -> Dim:
    """Inverse of `format_dim`; `symbol_of` gives the symbols in scope by name.

    Raises KeyError for an unknown symbol and ValueError for malformed text.
    """

    def walk(node: ast.AST) -> Dim:
        match node:
            case ast.Expression(body=body):
                return walk(body)
            case ast.Constant(value=int(v)):
                return v
            case ast.Name(id=name):
                return symbol_of[name]
            case ast.UnaryOp(op=ast.USub(), operand=e):
                return mul(walk(e), -1)
            case ast.BinOp(left=a, op=ast.Add(), right=b):
                return add(walk(a), walk(b))
            case ast.BinOp(left=a, op=ast.Sub(), right=b):
                return add(walk(a), mul(walk(b), -1))
            case ast.BinOp(left=a, op=ast.Mult(), right=b):
                return mul(walk(a), walk(b))
            case ast.Call(func=ast.Name(id="floordiv"), args=[e, ast.Constant(value=int(k))]):
                return floordiv(walk(e), k)
            case ast.Call(func=ast.Name(id="mod"), args=[e, ast.Constant(value=int(k))]):
                return mod(walk(e), k)
        raise ValueError(f"not an index expression: {text!r}")

    try:
        return walk(ast.parse(text.replace("%", ""), mode="eval"))
    except SyntaxError as e:
        raise ValueError(f"not an index expression: {text!r}") from e
