"""The corpus of aliasing arguments with arrays that share memory at the call itself."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import tracegrad as tg

CORPUS = Path(__file__).parent / "conformance"


class Spelled(np.ndarray):
    """An ndarray on which the corpus's way of making aliases works."""

    def permute(self, *order):
        return self.transpose(order)


class Corpus:
    """Cases of the corpus with arrays that share memory at the call, one compiled function a
    case function."""

    def __init__(self, monkeypatch):
        monkeypatch.syspath_prepend(str(CORPUS))
        import cases
        import check

        self.check = check
        self.weight = cases.weight
        self.cases = [c for c in cases.load_dir(str(CORPUS)) if c.module == "aliasing_args"]
        self.expected = json.loads((CORPUS / "expected.json").read_text())["cases"]
        self.made = {}

    def arguments(self, case):
        args = []
        for p, s in enumerate(case.inputs):
            if s.is_alias:
                args.append(s.how(args[s.of].view(Spelled)).view(np.ndarray))
            else:
                args.append(np.array(s.flat(p)).reshape(s.shape))
            assert not s.is_alias or np.shares_memory(args[p], args[s.of])
        return args

    def function(self, case, diff):
        if (case.fn, diff) not in self.made:

            def objective(*args):
                found = case.fn(tg, *args)
                outs = list(found) if isinstance(found, tuple) else [found]
                total = 0.0
                for k, o in enumerate(outs):
                    size = int(np.prod(o.shape))
                    w = np.array([self.weight(k, i) for i in range(size)]).reshape(o.shape)
                    total = total + (o * w).sum()
                return total, outs

            self.made[case.fn, diff] = (
                tg.value_and_grad(objective, argnums=diff, has_aux=True, arrays="torch"),
                tg.compile(lambda *args: case.fn(tg, *args), arrays="torch", backend="numpy"),
            )
        return self.made[case.fn, diff]

    def run(self, case):
        """Messages of what differs from the recorded answer."""
        diff = tuple(case.diff_positions())
        with_grad, plain = self.function(case, diff)
        args = self.arguments(case)
        (_, outs), grads = with_grad(*args)
        want = self.expected[case.name]
        want = want.get("or_value", want)

        result = SimpleNamespace(
            outputs=[np.asarray(o) for o in outs],
            finals=self.finals(args),
            grads=dict(zip(diff, grads, strict=True)),
        )
        found = [self.check.compare(case, result, want)]
        args = self.arguments(case)
        out = plain(*args)
        result.outputs = list(out) if isinstance(out, tuple) else [out]
        result.finals = self.finals(args)
        found.append(self.check.compare(case, result, want))
        return [f"{case.name}: {m}" for m in found if m]

    @staticmethod
    def finals(args):
        return dict(enumerate(args))


def test_the_corpus_with_arrays_that_really_alias(monkeypatch):
    corpus = Corpus(monkeypatch)
    assert len(corpus.cases) >= 29
    assert any(s.is_alias for c in corpus.cases for s in c.inputs)
    problems = [m for case in [*corpus.cases, *reversed(corpus.cases)] for m in corpus.run(case)]
    assert problems == []
