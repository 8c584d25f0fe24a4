"""Hypothesis strategies for surface files: every construct of the grammar, with comments where comments can stand.

What they make parses again without a finding; so names that mean a habit of another language are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from cake.expand.functions import FUNCTIONS, NOT_BUILT, load_rules
from cake.ir import surface as s

PLAIN = [
    "a",
    "b",
    "c",
    "acc",
    "x1",
    "_y",
    "BM",
    "STAGES",
    "load",
    "math",
    "f32",
    "bf16",
    "T",
    "forward",
    "notice",
    "iffy",
]
SOFT = ["where", "tiles", "role", "split", "one", "out", "warps", "const", "do", "turn", "temp", "kernel"]

names = st.sampled_from(PLAIN)
anywhere = st.sampled_from(PLAIN + SOFT)
"""Names inside expressions, where words such as ``where`` are no keywords."""

load_rules()
OPERATIONS = sorted({*FUNCTIONS, *NOT_BUILT})
"""Every operation and function of the language, by its dotted name."""


def dotted(name: str) -> s.Expr:
    """The expression that names an operation."""
    first, *rest = name.split(".")
    out: s.Expr = s.Name(name=first)
    for part in rest:
        out = s.Attribute(base=out, name=part)
    return out


REDUCTIONS = ("argmax", "argmin", "max", "min", "sum")  # with other arguments they are habits from elsewhere
functions = st.sampled_from(["f", "bf16", "range", "unroll", *(n for n in OPERATIONS if n not in REDUCTIONS)]).map(
    dotted
)
along = (s.Kwarg(name="axis", value=s.Number(value=1)),)
attributes = st.sampled_from(["fill", "release", "T", "m0", "async", "in", "x", "where"])

_comment = st.sampled_from(["# a", "# to do: nothing", "#", "#! é", '# "quoted" (open'])


def _comments() -> st.SearchStrategy[s.Comments]:
    several = st.lists(_comment, max_size=2).map(tuple)
    some = st.builds(s.Comments, before=several, after=st.none() | _comment, below=several)
    return st.just(s.NO_COMMENTS) | st.just(s.NO_COMMENTS) | some


def _tuple(of: st.SearchStrategy[Any], low: int = 0, high: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, min_size=low, max_size=high).map(tuple)


def _line(kind: type[Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(kind, comments=_comments(), **fields)


@st.composite
def _short(draw: st.DrawFn, strategy: Callable[[], st.SearchStrategy[Any]]) -> Any:
    """The same strategy, without the whole grammar in its representation."""
    return draw(strategy())


# -- expressions

numbers = st.one_of(
    st.integers(0, 2**63 - 1).map(lambda value: s.Number(value=value)),
    st.floats(0, allow_nan=False, allow_infinity=False).map(lambda value: s.Number(value=value)),
    st.sampled_from(["1.", "0.50", "1e-30", "2e5", "007", "3.e2"]).map(
        lambda text: s.Number(value=int(text) if text.isdigit() else float(text), text=text)
    ),
)
leaves = st.one_of(
    anywhere.map(lambda name: s.Name(name=name)), numbers, st.booleans().map(lambda value: s.Bool(value=value))
)

OPERATORS = ["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"]


def _kwargs(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    pairs = st.lists(st.tuples(names, values), max_size=2, unique_by=lambda pair: pair[0])
    return pairs.map(lambda items: tuple(s.Kwarg(name=name, value=value) for name, value in items))


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.builds(s.Slice, lo=st.none() | inner, hi=st.none() | inner, step=st.none() | inner)
    stepped = st.builds(s.Slice, lo=inner, step=inner) | st.builds(s.Slice, hi=inner, step=inner)
    slices = some | stepped | st.builds(s.Slice, lo=inner, hi=inner, step=inner)
    called = functions | st.builds(s.Attribute, base=inner, name=attributes)
    return st.one_of(
        st.builds(s.Unary, op=st.sampled_from(["neg", "not"]), operand=inner),
        st.builds(s.Binary, op=st.sampled_from(OPERATORS), left=inner, right=inner),
        st.builds(s.Attribute, base=inner, name=attributes),
        st.builds(s.Call, func=called, args=_tuple(inner, high=2), kwargs=_kwargs(inner)),
        st.builds(
            s.Call, func=st.sampled_from(REDUCTIONS).map(dotted), args=_tuple(inner, 1, 1), kwargs=st.just(along)
        ),
        st.builds(s.Index, base=inner, subs=_tuple(inner | slices, 1, 3)),
    )


_large = st.recursive(leaves, _compound, max_leaves=8)
_small = st.recursive(leaves, _compound, max_leaves=3)
exprs = _short(lambda: _large)
small = _short(lambda: _small)

# -- types and declarations

types = st.builds(s.TypeRef, dtype=names, dims=_tuple(small))
attrs = _tuple(st.builds(s.Attr, name=names, args=_tuple(small, high=2)), high=2)
guards = st.none() | small

params = st.builds(
    s.Param, direction=st.sampled_from(["in", "out", "inout"]), name=names, type=types, attrs=attrs, guard=guards
)
consts = _line(s.Const, name=names, choices=_tuple(small), value=small)
wheres = _line(s.Where, conditions=_tuple(exprs, 1))
assumes = _line(s.Assume, predicates=_tuple(exprs, 1))
defines = _line(s.Define, name=names, value=exprs)
axes = _line(s.Axis, name=names, extent=small, attrs=attrs)
tiles = _line(
    s.Tiles,
    schedule=st.builds(
        s.Attr, name=st.sampled_from(["once", "persistent", "dynamic", "clc"]), args=_tuple(small, high=1)
    ),
    items=_tuple(axes | defines | wheres, 1),
)
roles = _line(s.Role, name=names, instances=guards, warps=small, registers=guards)
buffers = {"name": names, "type": types, "attrs": attrs, "guard": guards}
pipelines = _line(
    s.Pipeline,
    name=names,
    stages=small,
    producers=_tuple(names, 1, 3),
    consumers=_tuple(names, 1, 3),
    one=st.booleans(),
    across=st.none() | names,
    fields=_tuple(_line(s.Field, **buffers), high=2),
)
smems = _line(s.Smem, **buffers)
turns = _line(s.Turn, name=names, role=names)

# -- statements

simple = st.one_of(
    _line(s.Declare, name=names, type=types, attrs=attrs, value=guards),
    _line(s.Assign, targets=_tuple(anywhere, 1, 3), value=exprs),
    _line(s.ExprStmt, expr=exprs),
    _line(s.Pass),
)


def _blocks(stmts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    body = _tuple(stmts, 1, 2)
    return st.one_of(
        _line(s.For, var=names, iter=small, split=_tuple(small, high=2), body=body),
        _line(s.With, expr=small, name=st.none() | names, body=body),
        _line(
            s.If,
            branches=_tuple(_line(s.Branch, cond=small, body=body), 1, 3),
            orelse=_tuple(stmts, 0, 2),
            else_comments=_comments(),
        ),
    )


_stmts = st.recursive(simple, _blocks, max_leaves=5)
stmts = _short(lambda: _stmts)
dos = _line(s.Do, role=names, var=st.none() | names, body=_tuple(stmts, 1))


def _kernel_has_text(kernel: s.Kernel) -> bool:
    return any(isinstance(child, s.Line) for child in s.children(kernel))


kernels = _line(
    s.Kernel,
    name=names,
    params=_tuple(params, 1, 4),
    targets=_tuple(st.sampled_from(["sm_80", "sm_90a", "sm_100a"]), 1, 3),
    consts=_tuple(consts, high=2),
    wheres=_tuple(wheres, high=1),
    assumes=_tuple(assumes, high=1),
    defines=_tuple(defines, high=1),
    tiles=st.none() | tiles,
    roles=_tuple(roles, high=2),
    pipelines=_tuple(pipelines, high=2),
    smems=_tuple(smems, high=1),
    turns=_tuple(turns, high=1),
    dos=_tuple(dos, high=2),
).filter(_kernel_has_text)

temps = _line(s.Temp, name=names, type=types, attrs=attrs)
steps = _line(s.Step, name=names, args=_tuple(small), kwargs=_kwargs(small))
sequences = _line(
    s.Sequence, name=names, params=_tuple(params, 1, 3), temps=_tuple(temps, high=2), steps=_tuple(steps, high=2)
).filter(lambda sequence: bool(sequence.temps or sequence.steps))

files = _line(
    s.File, consts=_tuple(consts, high=2), kernels=_tuple(kernels, high=2), sequences=_tuple(sequences, high=1)
)
