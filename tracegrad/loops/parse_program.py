"""Reads the text form of whole programs."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from tracegrad.dims import Dim, Symbol, of_atom
from tracegrad.dtypes import I64, DType
from tracegrad.loops.ir import Intrinsic, Kernel
from tracegrad.loops.parse import KernelReader
from tracegrad.loops.program import (
    Branch,
    Buffer,
    CheckSite,
    Copy,
    Grow,
    HostLoop,
    Launch,
    Place,
    Program,
    Step,
    WhileLoop,
    Workers,
)


def parse_program(text: str, intrinsics: Mapping[str, Intrinsic]) -> Program:
    """The program that `print_program` printed.  Raises ParseError."""
    reader = _ProgramReader(text, intrinsics)
    program = reader.program()
    reader.end()
    return program


class _ProgramReader(KernelReader):
    def program(self) -> Program:
        self.expect("program")
        self.expect("@")
        name = self.string() if self.match(r'(?=")') else self.name()
        self.expect("arena")
        arena = self.integer()
        self.expect("{")
        buffers: list[Buffer] = []
        checks: list[CheckSite] = []
        kernels: dict[str, Kernel] = {}
        steps: list[Step] = []
        while not self.skip("}"):
            if self.skip("buffer"):
                buffers.append(self.buffer())
            elif self.skip("check"):
                checks.append(CheckSite(self.string(), self.loc()))
            elif self.match(r"(?=launch\b|for\b|while\b|branch\b|grow\b|copy\b)"):
                steps.append(self.step(kernels))
            else:
                kernel = self.kernel()
                kernels[kernel.name] = kernel
        return Program(name, tuple(buffers), tuple(steps), arena, tuple(checks))

    def buffer(self) -> Buffer:
        name = self.local()
        self.expect(":")
        dtype = self.dtype()
        size = self.bracketed()
        place = Place(self.name())
        index = self.integer()
        offset = self.integer() if self.skip("offset") else 0
        written = self.skip("written")
        self.expect("shape")
        self.expect("(")
        shape: list[Dim] = []
        while not self.skip(")"):
            if shape:
                self.expect(",")
            shape.append(self.dim(",)"))
        hint = self.string() if self.skip("hint") else ""
        data = self.data(dtype) if self.skip("data") else None
        return Buffer(name, dtype, size, place, index, offset, written, data, tuple(shape), hint)

    def data(self, dtype: DType) -> np.ndarray:
        if self.match(r'(?=")'):
            return np.frombuffer(bytes.fromhex(self.string()), dtype.np)
        text = self.take(r"\[[^\]]*\]", "numbers in brackets")
        if dtype.is_float:
            return np.array([float(v) for v in text[1:-1].split(",") if v.strip()], dtype.np)
        return np.array(ast.literal_eval(text), dtype.np)

    def step(self, kernels: Mapping[str, Kernel]) -> Step:
        if self.skip("launch"):
            return self.launch(kernels)
        if self.skip("branch"):
            return self.choice(kernels)
        if self.skip("while"):
            return self.while_loop(kernels)
        if self.skip("grow"):
            return self.grow()
        if self.skip("copy"):
            return self.copy()
        self.expect("for")
        outer = dict(self.scalars), dict(self.symbols)
        var, trips = self.header(",")
        self.expect(",")
        order = self.take("forward|reverse", "forward or reverse")
        count, workers = None, None
        while self.skip(","):
            if self.skip("count"):
                count = self.local()
            else:
                workers = self.workers()
        loc = self.loc()
        body = self.inside(kernels)
        self.scalars, self.symbols = outer
        return HostLoop(var, trips, order == "reverse", body, loc, count=count, workers=workers)

    def workers(self) -> Workers:
        numbers = []
        for word in ("chunks", "threads", "stride"):
            self.expect(word)
            numbers.append(self.integer())
        self.expect("private")
        self.expect("(")
        private: list[str] = []
        while not self.skip(")"):
            if private:
                self.expect(",")
            private.append(self.local())
        self.expect("sums")
        self.expect("(")
        sums: list[tuple[str, str]] = []
        while not self.skip(")"):
            if sums:
                self.expect(",")
            total = self.local()
            self.expect("in")
            sums.append((total, self.local()))
        chunks, threads, stride = numbers
        return Workers(chunks, threads, stride, tuple(private), tuple(sums))

    def inside(self, kernels: Mapping[str, Kernel]) -> tuple[Step, ...]:
        self.expect("{")
        return self.steps(kernels)

    def steps(self, kernels: Mapping[str, Kernel]) -> tuple[Step, ...]:
        """The steps up to the closing brace."""
        found: list[Step] = []
        while not self.skip("}"):
            found.append(self.step(kernels))
        return tuple(found)

    def while_loop(self, kernels: Mapping[str, Kernel]) -> WhileLoop:
        flag = self.local()
        self.expect(",")
        outer = dict(self.scalars), dict(self.symbols)
        name = self.name()
        hi = self.integer() - 1 if self.skip("in") else None
        loc = self.loc()
        self.expect("{")
        self.expect("test")
        var = Symbol(name, 0, hi)
        self.symbols[name] = of_atom(var)
        self.scalars[name] = I64
        test = self.inside(kernels)
        body = self.steps(kernels)
        self.scalars, self.symbols = outer
        return WhileLoop(var, flag, test, body, loc)

    def grow(self) -> Grow:
        buffer = self.local()
        self.expect("to")
        size = self.dim(",")
        self.expect(",")
        self.expect("check")
        return Grow(buffer, size, self.integer(), self.loc())

    def copy(self) -> Copy:
        source = self.local()
        self.expect("to")
        target = self.local()
        self.expect(",")
        self.expect("check")
        return Copy(source, target, self.integer(), self.loc())

    def choice(self, kernels: Mapping[str, Kernel]) -> Branch:
        selector = self.local()
        loc = self.loc()
        self.expect("{")
        cases = []
        while not self.skip("}"):
            self.expect("case")
            cases.append(self.inside(kernels))
        return Branch(selector, tuple(cases), loc)

    def launch(self, kernels: Mapping[str, Kernel]) -> Launch:
        self.expect("@")
        name = self.name()
        if name not in kernels:
            raise self.fail(f"no kernel @{name} above")
        self.expect("(")
        args: list[str] = []
        while not self.skip(")"):
            if args:
                self.expect(",")
            args.append(self.local())
        indices: list[Dim] = []
        if self.skip("["):
            while not self.skip("]"):
                if indices:
                    self.expect(",")
                indices.append(self.dim(",]"))
        base = self.integer() if self.skip("checks") else 0
        return Launch(kernels[name], tuple(args), base, indices=tuple(indices), loc=self.loc())
