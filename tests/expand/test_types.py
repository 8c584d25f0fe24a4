"""Refusals of types: names, dtypes, shapes, layouts, subscripts, reductions, element moves and their proofs."""

from __future__ import annotations

from tests.expand.cases import Case, check, parametrised
from tests.expand.kernels import rows

LOAD = "v = load(x[t.r, cols(v)], where=cols(v) < N)\n"
MORE = "x: f32[M, N], h: bf16[M, N], i: i32[M], out y: f32[M, N], out o: f32[M]"


def row(body: str, **more: str) -> str:
    """A row kernel whose tile has been loaded."""
    return rows(LOAD + body, **more)


def odd(body: str) -> str:
    """A row kernel whose rows have any length."""
    return rows(body, head="where M > 0")


CASES = [
    Case("name", "T001", row("u = vv + 1.0  # here"), ("`vv`", "`v`")),
    Case("tile index hidden", "T002", row("x = v  # here"), ("`x`", "tensor")),
    Case("arguments missing", "T003", row("store(y[t.r, cols(v)])  # here"), ("`value`", "store(")),
    Case("arguments too many", "T003", row("u = exp2(v, v)  # here"), ("`exp2`", "1")),
    Case(
        "argument misspelt", "T003", row("u = load(x[t.r, cols(v)], wher=cols(v) < N)  # here"), ("`wher`", "`where=`")
    ),
    Case("argument twice", "T003", row("u = exp2(v, x=v)  # here"), ("`x`",)),
    Case("hint", "T003", row("u = load(x[t.r, cols(v)], where=cols(v) < N, l2=stream)  # here"), ("evict_first",)),
    Case("several targets", "T003", row("a, b = max(v, axis=1)  # here"), ("`argmax`",)),
    Case("range", "T003", row("for i in range():  # here\n    pass"), ("`range`",)),
    Case("operation misspelt", "T004", row("u = rsqt(v)  # here"), ("`rsqt`", "`rsqrt`")),
    Case("operation of a namespace", "T004", row("tma.lod(v)  # here"), ("`tma.lod`", "`tma.load`")),
    Case("call of a tile", "T004", row("u = v(1)  # here"), ("called",)),
    Case("two dtypes", "T005", row("u = v + bf16(v)  # here"), ("bf16 and f32", "cast")),
    Case("float division of integers", "T005", row("u = cols(v) / 2  # here"), ("`/`", "`//`")),
    Case("integer division of floats", "T005", row("u = v // v  # here"), ("`//`", "`/`")),
    Case("float literal on integers", "T005", row("u = cols(v) + 1.5  # here"), ("1.5", "i32")),
    Case("condition of a number", "T005", row("if t.r:  # here\n    pass"), ("bool", "compare")),
    Case("condition of where", "T005", row("u = where(v, v, 0.0)  # here"), ("`where`", "f32")),
    Case("arithmetic on bool", "T005", row("u = (v > 0.0) + (v > 1.0)  # here"), ("bool",)),
    Case("arithmetic on a bool literal", "T005", row("q = True + 1  # here"), ("`+`", "True")),
    Case(
        "stored in another type",
        "T005",
        row("store(y[t.r, cols(v)], bf16(v), where=cols(v) < N)  # here"),
        ("`y`", "f32(…)"),
    ),
    Case("mask of numbers", "T005", row("store(y[t.r, cols(v)], v, where=cols(v))  # here"), ("`where=`",)),
    Case("subscript of a float", "T005", row("u = load(o[1.0])  # here", params=MORE), ("subscript", "f32")),
    Case("index tile of floats", "T005", row("u = load(x[t.r, v])  # here"), ("index tile", "f32")),
    Case("assigned in another type", "T005", row("v = bf16(v)  # here"), ("`v`", "f32(…)")),
    Case("sum of bool", "T005", row("u = sum(v > 0.0, axis=1)  # here"), ("`sum`", "count")),
    Case("bound of a float", "T005", row("for i in range(1.0):  # here\n    pass"), ("integer",)),
    Case("no broadcast", "T006", row("w: f32[1, 256] spread(4) = 0.0\nu = v + w  # here"), ("[1, 512]", "[1, 256]")),
    Case("assigned another shape", "T006", row("w: f32[1, 256] spread(4) = 0.0\nw = v  # here"), ("`w`", "[1, 512]")),
    Case(
        "scalar into a block",
        "T006",
        row(
            "store(b[0 : 4], 1.0)  # here", head="where N % 4 == 0\nsmem b: f32[4]".replace("\nsmem b: f32[4]", "")
        ).replace("    role", "    smem b: f32[4]\n    role", 1),
        ("scalar",),
    ),
    Case("tile into an element", "T006", row("store(o[t.r], v)  # here", params=MORE), ("one element", "index tiles")),
    Case(
        "more values than elements",
        "T006",
        row("store(o[cols(sum(v, axis=1))], v)  # here", params=MORE),
        ("[1, 512]",),
    ),
    Case(
        "more mask than elements",
        "T006",
        row("w: f32[1, 1] spread(1) = 0.0\nu = load(o[cols(w)], where=cols(v) < N)  # here", params=MORE),
        ("predicate",),
    ),
    Case(
        "one element under many conditions",
        "T006",
        row("u = load(o[t.r], where=cols(v) < N)  # here", params=MORE),
        ("condition", "index tiles"),
    ),
    Case("two layouts", "T007", row("w: f32[1, 512] spread(2) = 0.0\nu = v + w  # here"), ("spread(4)", "spread(2)")),
    Case(
        "indices of rows that other threads have",
        "T007",
        row(
            "w: f32[2, 512] spread(4)\n"
            "g = load(i[rows(w)], where=rows(w) < M)\n"
            "u = load(z[g, cols(w)], where=g >= 0 and g < M)  # here",
            params=MORE + ", z: f32[M, 512]",
        ),
        ("[2, 1]", "[2, 512]", "one row at a time"),
    ),
    Case(
        "values of rows that other threads have",
        "T007",
        row(
            "w: f32[2, 512] spread(4) = 0.0\ng = load(o[rows(w)], where=rows(w) < M)\nw = w + g  # here",
            params=MORE.replace("out o", "o"),
        ),
        ("[2, 1]", "through shared memory"),
    ),
    Case("block load", "T007", row("u = load(x[t.r : t.r + 1, 0 : 64])  # here"), ("layout", "ldmatrix")),
    Case("transposed tile", "T007", row("u = v.T  # here"), ("transposed", "shared memory")),
    Case("copies of a dim", "T008", row("for i in unroll(M):  # here\n    pass"), ("`unroll`", "compile time")),
    Case("extent of a dim", "T008", row("w: f32[1, N] spread(4)  # here"), ("extent",)),
    Case("no value", "T010", rows("u = v + 1.0  # here"), ("`v`", "= 0.0")),
    Case("value on one path", "T010", row("if t.r > 0:\n    u = v + 1.0\nw = u + 1.0  # here"), ("`u`",)),
    Case("scalar on one path", "T010", row("if t.r > 0:\n    q = 1\nw = q + t.r  # here"), ("`q`",)),
    Case("loop variable after its loop", "T010", row("for i in range(N):\n    pass\nw = i + 1  # here"), ("`i`",)),
    Case(
        "value of a loop that may not run", "T010", row("for i in range(t.r):\n    q = i\nw = q + 1  # here"), ("`q`",)
    ),
    Case(
        "index tile of a changed scalar",
        "T010",
        row("q = 1\nc = q + cols(v)\nq = 2\nu = load(x[t.r, c], where=c < N)  # here"),
        ("`c`",),
    ),
    Case("expression alone", "T011", row("v + 1.0  # here"), ("no effect",)),
    Case("unused result", "T011", row("exp2(v)  # here"), ("not used",)),
    Case(
        "operation without value",
        "T011",
        row("u = store(y[t.r, cols(v)], v, where=cols(v) < N)  # here"),
        ("no value",),
    ),
    Case("tile as a bound", "T011", row("for i in range(v):  # here\n    pass"), ("uniform scalar", "f32[1, 512]")),
    Case("tensor in arithmetic", "T011", row("u = v + x  # here"), ("`x`", "load")),
    Case("index of a scalar", "T011", row("u = cols(t.r)  # here"), ("`cols`",)),
    Case("two results as one", "T011", row("u = argmax(v, axis=1)  # here"), ("`argmax`", "two results")),
    Case("assigned an operation", "T011", row("u = exp2  # here"), ("`exp2`",)),
    Case("with a tile", "T011", row("with v:  # here\n    pass"), ("`with`",)),
    Case("sync over a tile", "T011", row("sync(v)  # here"), ("`sync`",)),
    Case("tensor as accumulator", "T011", row("wgmma(x, v, v)  # here"), ("`wgmma`", "`x`")),
    Case("too many subscripts", "T013", row("u = load(x[t.r, 0, cols(v)])  # here"), ("`x`", "2 axes")),
    Case("subscript of a scalar", "T013", row("u = t.r[0]  # here"), ("subscripted",)),
    Case("slice of unknown length", "T013", row("u = load(x[t.r, 0 : N])  # here"), ("constant", "N")),
    Case("slice with a step", "T013", row("u = load(x[t.r, 0 : 64 : 2])  # here"), ("step",)),
    Case("empty slice", "T013", row("u = load(x[t.r, 4 : 4])  # here"), ("0 elements",)),
    Case("subscript of an expression", "T013", row("u = (v + v)[0 : 1]  # here"), ("name",)),
    Case("store to an input", "T013", row("store(x[t.r, cols(v)], v, where=cols(v) < N)  # here"), ("`x`", "out")),
    Case("load of a transpose", "T013", row("u = load(x.T)  # here"), (".T",)),
    Case("tile field", "T014", row("u = t.q  # here"), ("`q`", "`r`")),
    Case("attribute of a tensor", "T014", row("u = x.shape  # here"), ("`x`", "`shape`")),
    Case("no layout", "T015", row("w: f32[1, 512]  # here"), ("layout", "spread")),
    Case("layout misspelt", "T015", row("w: f32[1, 512] sprad(4)  # here"), ("`sprad`",)),
    Case("two layouts declared", "T015", row("w: f32[1, 512] frag spread(4)  # here"), ("one layout",)),
    Case("spread of nothing", "T015", row("w: f32[1, 512] spread  # here"), ("spread(v)",)),
    Case("frag of a number", "T015", row("w: f32[64, 64] frag(2)  # here"), ("`frag`",)),
    Case("frag of two warps", "T015", row("w: f32[32, 8] frag  # here", warps="2"), ("1 or 4 warps",)),
    Case("frag rows", "T015", row("w: f32[32, 8] frag  # here"), ("multiple of 64",)),
    Case("one axis", "T015", row("w: f32[64] frag  # here"), ("rows and columns",)),
    Case("type misspelt", "T015", row("w: flt32[64, 8] frag  # here"), ("`flt32`",)),
    Case("tracker", "T015", row("w: topk[48, 8] frag group(4)  # here"), ("48",)),
    Case("element of a tile", "T016", row("u = v[0, 3]  # here"), ("registers",)),
    Case("columns of a spread tile", "T016", row("u = v[:, 0 : 64]  # here"), ("spread",)),
    Case(
        "slice inside a fragment",
        "T016",
        row("w: f32[64, 64] frag = 0.0\nu = w[:, 4 : 12]  # here"),
        ("multiples of 8",),
    ),
    Case(
        "slice past the end", "T016", row("w: f32[64, 64] frag = 0.0\nu = w[:, 0 : 72]  # here"), ("0 : 72", "0 : 64")
    ),
    Case("leading index past the end", "T016", row("w: f32[2, 64, 64] frag = 0.0\nu = w[2]  # here"), ("2",)),
    Case("axis", "T017", row("u = sum(v, axis=2)  # here"), ("axes 0", "2")),
    Case("partial values", "T017", row("u = sum(v, axis=1, to=4)  # here"), ("`to=128`",)),
    Case("arg along rows", "T017", row("a, b = argmax(v, axis=0)  # here"), ("axis 1",)),
    Case("tile changes", "T020", row("w: f32[1, 256] spread(4)\nw: f32[1, 512] spread(4)  # here"), ("`w`",)),
    Case("scalar becomes float", "T020", row("q = 1\nq = 1.0  # here"), ("`q`", "i32")),
    Case("scalar becomes a tile", "T020", row("q = 1\nq = v + 1.0  # here"), ("`q`",)),
    Case("for over a tensor", "T022", row("for i in x:  # here\n    pass"), ("`range(…)`",)),
    Case("split unroll", "T022", row("for i in unroll(4) split(1):  # here\n    pass"), ("not split",)),
    Case("nested walks", "T022", row("for u in tiles:  # here\n    pass"), ("nest",)),
    Case("split tiles", "T022", rows("pass").replace("in tiles:", "in tiles split(1):  # here"), ("not split",)),
    Case("split with a step", "T022", row("for i in range(0, N, 2) split(1):  # here\n    pass"), ("step 1",)),
    Case(
        "rows of a spread tile", "T099", row("w: f32[4, 512] spread(4) = 0.0\nu = sum(w, axis=1)  # here"), ("one row",)
    ),
    Case("reduction along rows", "T099", row("u = sum(v, axis=0)  # here"), ("rows",)),
    Case(
        "barrier of another role",
        "C601",
        row("sync(other)  # here").replace(
            "    do row", "    role other: warps 1\n    do other:\n        pass\n    do row", 1
        ),
        ("`row`", "`other`"),
    ),
    Case("past the end", "O503", rows("v = load(x[t.r, cols(v)])  # here"), ("past axis 1", "`x`", "where=")),
    Case(
        "below the start",
        "O503",
        rows("v = load(x[t.r - 1, cols(v)], where=cols(v) < N)  # here"),
        ("below axis 0", "t.r - 1"),
    ),
    Case(
        "row past the end", "O503", rows("v = load(x[t.r + 1, cols(v)], where=cols(v) < N)  # here"), ("past axis 0",)
    ),
    Case(
        "gathered row",
        "O503",
        row("j = load(i[t.r])\nv = load(x[j, cols(v)], where=cols(v) < N)  # here", params=MORE),
        ("below axis 0",),
    ),
    Case(
        "slice of a buffer",
        "O503",
        row("store(b[t.r : t.r + 4], v[:, :])  # here").replace("    role", "    smem b: f32[16]\n    role", 1),
        ("axis 0", "`b`"),
    ),
    Case("store past the end", "O503", row("store(y[t.r, cols(v) + 1], v, where=cols(v) < N)  # here"), ("`y`",)),
    Case(
        "alignment", "O506", odd("v = load(x[t.r, cols(v)], where=cols(v) < N)  # here"), ("4 elements", "N % 4 == 0")
    ),
    Case("shifted", "O506", rows("v = load(x[t.r, cols(v) + 1], where=cols(v) + 1 < N)  # here"), ("4 elements",)),
    Case(
        "part of a vector",
        "O506",
        rows("v = load(x[t.r, cols(v)], where=cols(v) < t.r and cols(v) < N)  # here"),
        ("predicate",),
    ),
    Case(
        "padding breaks vectors",
        "O506",
        row("store(b[0, cols(v)], v)  # here").replace("    role", "    smem b: f32[2, 512] pad(2)\n    role", 1),
        ("`pad(2)`",),
    ),
    Case(
        "fragment on Ampere",
        "W711",
        rows("w: bf16[64, 64] frag = 0.0\nstmatrix(b, w)  # here")
        .replace("sm_90a", "sm_80")
        .replace("    role", "    smem b: bf16[64, 64]\n    role", 1),
        ("`stmatrix`", "sm_80"),
    ),
    Case("flag of an input", "T013", row("signal(i[t.r], 1)  # here", params=MORE), ("inout",)),
    Case(
        "flag of a tile",
        "T013",
        row("wait_until(f[cols(v)], 1)  # here", params=MORE + ", inout f: i32[M]"),
        ("one element",),
    ),
    Case("flag of floats", "T005", row("wait_until(f[t.r], 1)  # here", params=MORE + ", inout f: f32[M]"), ("i32",)),
    Case("flag and a float", "T005", row("signal(f[t.r], 1.5)  # here", params=MORE + ", inout f: i32[M]"), ("i32",)),
    Case("flag outside", "O503", row("signal(f[t.r + 1], 1)  # here", params=MORE + ", inout f: i32[M]"), ("f",)),
    Case("pdl", "T099", row("pdl.wait()  # here"), ("launch",)),
]


@parametrised(CASES)
def test_refused(case: Case) -> None:
    check(case)


def test_a_refused_name_is_reported_once() -> None:
    """What a refused statement would have assigned is poisoned: its uses say nothing."""
    from tests.expand.kernels import found

    text = row("u = undefined + v\nw = u * 2.0\nz = w + u\nstore(y[t.r, cols(v)], z, where=cols(v) < N)")
    assert [(d.code, d.span.line if d.span else 0) for d in found(text)] == [("T001", 10)]
