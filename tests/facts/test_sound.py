"""Every positive answer, against enumeration: random facts, random questions, small ranges."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cake.facts import Facts, show
from cake.ir.expr import Apply, Axis, Const, Expr, Sym, boolean, integer

NAMES = ("x", "y", "z", "%col")
SPAN = range(-4, 8)

_EVAL: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "cdiv": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
    "neg": operator.neg,
    "abs": abs,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": operator.not_,
    "where": lambda c, a, b: a if c else b,
}


def evaluate(e: Expr, env: dict[str, Any]) -> Any:
    """The value; ZeroDivisionError where a division by zero makes it meaningless."""
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Sym):
        return env[e.name]
    if isinstance(e, Axis):
        return env["%" + e.axis]
    assert isinstance(e, Apply)
    return _EVAL[e.op](*(evaluate(a, env) for a in e.args))


def leaf() -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.integers(-3, 9).map(integer),
        st.sampled_from([Sym(name=n) for n in NAMES[:3]] + [Axis(axis="col")]),
    )


def divisor() -> st.SearchStrategy[Expr]:
    return st.one_of(st.integers(1, 5).map(integer), st.sampled_from([integer(-2), Sym(name="y")]))


def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def apply(op: str, *args: Expr) -> Expr:
        return Apply(op=op, args=args, dtype="i32")

    def choice(op: str, a: Expr, b: Expr, c: Expr, d: Expr) -> Expr:
        return Apply(op="where", args=(Apply(op=op, args=(a, b), dtype="bool"), c, d), dtype="i32")

    return st.one_of(
        st.builds(apply, st.sampled_from(["+", "-", "+", "-", "*", "min", "max"]), inner, inner),
        st.builds(apply, st.sampled_from(["//", "%", "cdiv"]), inner, divisor()),
        st.builds(apply, st.sampled_from(["neg", "abs"]), inner),
        st.builds(choice, st.sampled_from(["<", "=="]), inner, inner, inner, inner),
    )


integers = st.recursive(leaf(), grow, max_leaves=6)
comparisons = st.builds(
    lambda op, a, b: Apply(op=op, args=(a, b), dtype="bool"),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    integers,
    integers,
)
congruences = st.builds(
    lambda e, n, c: Apply(
        op="==", args=(Apply(op="%", args=(e, integer(n)), dtype="i32"), integer(c % n)), dtype="bool"
    ),
    integers,
    st.integers(2, 6),
    st.integers(0, 5),
)
conditions = st.recursive(
    st.one_of(comparisons, congruences),
    lambda c: st.one_of(
        st.builds(lambda op, a, b: Apply(op=op, args=(a, b), dtype="bool"), st.sampled_from(["and", "or"]), c, c),
        st.builds(lambda a: Apply(op="not", args=(a,), dtype="bool"), c),
    ),
    max_leaves=3,
)


def worlds(assumed: list[Expr], defined: Expr, bounds: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Every assignment that satisfies the facts (``d`` is the defined name)."""
    out = []
    for values in itertools.product(*(range(lo, hi) for lo, hi in bounds)):
        env: dict[str, Any] = dict(zip(NAMES, values, strict=True))
        try:
            env["d"] = evaluate(defined, env)
            if all(evaluate(c, env) for c in assumed):
                out.append(env)
        except ZeroDivisionError:
            continue
    return out


def values(e: Expr, envs: list[dict[str, Any]]) -> list[Any]:
    out = []
    for env in envs:
        try:
            out.append(evaluate(e, env))
        except ZeroDivisionError:
            continue
    return out


spans = st.lists(
    st.tuples(st.integers(-4, 3), st.integers(1, 5)).map(lambda t: (t[0], t[0] + t[1])), min_size=4, max_size=4
)
with_d = st.recursive(st.one_of(leaf(), st.just(Sym(name="d"))), grow, max_leaves=5)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    spans,
    st.lists(st.sampled_from(["both", "both", "low", "none"]), min_size=4, max_size=4),
    integers,
    st.lists(conditions, max_size=3),
    st.lists(conditions, min_size=2, max_size=3),
    st.lists(with_d, min_size=2, max_size=3),
)
def test_every_answer_holds(
    bounds: list[tuple[int, int]],
    told: list[str],
    defined: Expr,
    assumed: list[Expr],
    asked: list[Expr],
    terms: list[Expr],
) -> None:
    f = Facts()
    for name, (lo, hi), which in zip(NAMES, bounds, told, strict=True):
        f.declare(name, lo if which != "none" else None, hi if which == "both" else None)
    f.define("d", defined)
    for c in assumed:
        f.assume(c)
    envs = worlds(assumed, defined, bounds)
    if not envs:
        return
    assert f.consistent()
    for q in asked:
        answer = f.prove(q)
        got = values(q, envs)
        assert answer is None or all(bool(v) is answer for v in got), (show(q), answer)
        same = f.simplify(q)
        assert [bool(v) for v in values(same, envs)][: len(got)] == [bool(v) for v in got] or len(got) < len(envs)
    for e in terms:
        got = values(e, envs)
        if not got:
            continue
        lo, hi = f.range(e)
        assert lo is None or lo <= min(got), show(e)
        assert hi is None or hi >= max(got), show(e)
        constant = f.constant(e)
        assert constant is None or set(got) == {constant}, show(e)
        assert all(v % f.alignment(e, 64) == 0 for v in got), show(e)
        for n in (2, 3, 4):
            assert not f.divides(n, e) or all(v % n == 0 for v in got), (n, show(e))
        if len(got) == len(envs):
            assert values(f.simplify(e), envs) == got, (show(e), show(f.simplify(e)))
    if len(values(terms[0], envs)) == len(values(terms[1], envs)) == len(envs):
        pairs = list(zip(values(terms[0], envs), values(terms[1], envs), strict=True))
        assert not f.equal(terms[0], terms[1]) or all(a == b for a, b in pairs)
        d = f.difference(terms[0], terms[1])
        assert d is None or all(a - b == d for a, b in pairs)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(spans, integers, st.lists(conditions, max_size=2), conditions, conditions)
def test_reassignment_holds(
    bounds: list[tuple[int, int]], value: Expr, before: list[Expr], after: Expr, asked: Expr
) -> None:
    """``x = value`` between two sets of assumptions."""
    f = Facts()
    for name, (lo, hi) in zip(NAMES, bounds, strict=True):
        f.declare(name, lo, hi)
    for c in before:
        f.assume(c)
    f.assign("x", value)
    f.assume(after)
    envs = []
    for env in worlds(before, integer(0), bounds):
        try:
            new = {**env, "x": evaluate(value, env)}
            if evaluate(after, new):
                envs.append(new)
        except ZeroDivisionError:
            continue
    answer = f.prove(asked)
    assert answer is None or all(bool(v) is answer for v in values(asked, envs)) or not envs


def test_boolean_constants() -> None:
    f = Facts()
    assert f.prove(boolean(True)) is True
    assert f.prove(boolean(False)) is False
