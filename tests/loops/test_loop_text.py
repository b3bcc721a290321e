"""The text form: one kernel read by eye, places, and errors with their position."""

from __future__ import annotations

import pytest
from loop_cases import INTRINSICS

from tracegrad.dtypes import F32, F64
from tracegrad.errors import ParseError
from tracegrad.loops.ir import Const
from tracegrad.loops.text import parse_kernel, print_expr, print_kernel
from tracegrad.loops.verify import verify_kernel
from tracegrad.source import SourceLoc

TEXT = """\
kernel @f.k0(in %x: f64[12], in %j: i32[4], inout %r: f64[4], out %detail: i64[1]) {
  alloc %row: f64[3]
  for i in 4, parallel loc("demo.py":4:9) {
    let %at: i32 [0..3] = load %j[i]
    check lt(%at, 4:i32):bool else 2 with %at loc("demo.py":5:1)
    reduce over k in 3 {
      let %y: f64 = mul(load %x[3*at + k], 2.0)
    } yield %acc: f64 = add from -0.0 of %y, %top: f64 = max from -inf of %y
    if eq(index(mod(i, 2)), 1):bool {
      store %r[i] = select(lt(%acc, nan):bool, %top, cast(1.5:f32):f64)
    } else {
      update %r[i] max %acc
    }
  }
  for s [0..7] in 3, serial {
    store %row[0] = cast(%s):f64
  }
  gemm f64 (1, 2, 2) %r[0; 2; 1] += %x[4; 2; 1] @ %x[0; 1; 2]
}
"""


def test_reads_and_prints_back():
    assert print_kernel(parse_kernel(TEXT, INTRINSICS)) == TEXT


def test_places_are_kept_and_can_be_left_out():
    kernel = parse_kernel(TEXT, INTRINSICS)
    assert kernel.body[1].loc == SourceLoc("demo.py", 4, 8, 8)
    bare = print_kernel(kernel, locs=False)
    assert "loc(" not in bare
    assert parse_kernel(bare, INTRINSICS) == kernel


def test_the_text_is_verified_like_any_kernel():
    good = TEXT.replace("for s [0..7] in 3", "for s in 3")
    verify_kernel(parse_kernel(good, INTRINSICS))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mul(load", "mull(load", "line 7, column .*unknown function mull"),
        ("%x[3*at + k]", "%x[3*at + q]", "q is not in scope"),
        ("load %j[i]", "load %jj[i]", "buffer %jj is not in scope"),
        ("update %r[i] max", "update %r[i] most", "unknown combination most"),
        ("parallel", "paralel", "unknown loop tag paralel"),
        ("let %y: f64", "let %y: f32", "%y is f32, its value f64"),
        ("let %y: f64", "let %y: f65", "unknown dtype"),
        ("check lt", "chekc lt", "unknown statement chekc"),
        ("3*at + k", "3*at +* k", "not an index expression"),
        ("gemm f64 (1, 2, 2)", "gemm f64 (1, 2)", "expected"),
    ],
)
def test_errors_say_where(old, new, message):
    assert TEXT.count(old) >= 1
    with pytest.raises(ParseError, match=message):
        parse_kernel(TEXT.replace(old, new, 1), INTRINSICS)


def test_text_after_the_end():
    with pytest.raises(ParseError, match="unexpected text after the end"):
        parse_kernel(TEXT + "}", INTRINSICS)


def test_constants_show_their_dtype_only_when_needed():
    assert print_expr(Const(2.0, F64)) == "2.0"
    assert print_expr(Const(2, F64)) == "2:f64"
    assert print_expr(Const(0.1, F32)) == "0.1:f32"
    assert print_expr(Const(float("-inf"), F64)) == "-inf"
