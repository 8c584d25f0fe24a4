"""Trackers: what they expand to, and what is said where they are misused."""

from __future__ import annotations

from cake.compiler import expand_text
from cake.ir.expr import Reg
from tests.expand.cases import Case, check, parametrised
from tests.expand.kernels import flat, role

HEAD = "best: argmax[64] frag group(4)"
BODY = """
best.clear()
for j in range(4):
    a = load(x[rows(a), 64 * j + cols(a)])
    best.add(a, 64 * j)
top, at = best.take()
store(y[rows(top)], top)
"""


WIDE = """
best.clear()
a = load(x[rows(a), cols(a)])
best.add(a, 0)
top, at = best.take()
store(y[rows(top), cols(top)], top)
"""
LISTS = """
best.clear()
for j in range(4):
    a = load(x[rows(a), 64 * j + cols(a)])
    best.add(a, 64 * j)
top, at = best.take()
store(z[rows(top), cols(top)], top)
store(n[rows(at), cols(at)], at)
"""


def follow(body: str = BODY, head: str = HEAD, cols: int = 64) -> str:
    """A kernel that follows the columns of x in four tiles."""
    lines = [
        "kernel k(x: f32[64, 512], out y: f32[64], out z: f32[64, 8], out n: i32[64, 8]) for sm_90a:",
        "    tiles once:",
        "        i in 1",
        "    role math: warps 4",
    ]
    lines += ["    do math:", f"        a: f32[64, {cols}] frag", *("        " + line for line in head.splitlines())]
    lines += ["        for t in tiles:", *("            " + line for line in body.strip().splitlines())]
    return "\n".join(lines) + "\n"


def test_expansion() -> None:
    """Two tiles of partial values; a statement an `add`; two reductions at the end."""
    kernel = expand_text(follow())
    math = role(kernel, "math")
    assert {n: str(math.tiles[n]) for n in ("best.top", "best.col")} == {
        "best.top": "f32[64, 4] frag",
        "best.col": "i32[64, 4] frag",
    }
    ops = [n for n in flat(math.body) if n.kind == "op"]
    assert [n.op for n in ops] == ["assign", "assign", "load", "track", "reduce", "reduce", "assign", "assign", "store"]
    track = next(n for n in ops if n.op == "track")
    assert track.attrs == {"function": "argmax", "group": 4}


def test_lists() -> None:
    """Two tiles of lists in the layout of their own; a statement an `add`; `take` gives them as they are."""
    kernel = expand_text(follow(LISTS, "best: topk[64, 8] frag group(4)"))
    math = role(kernel, "math")
    assert {n: str(math.tiles[n]) for n in ("best.top", "best.col", "top", "at")} == {
        "best.top": "f32[64, 8] quad",
        "best.col": "i32[64, 8] quad",
        "top": "f32[64, 8] quad",
        "at": "i32[64, 8] quad",
    }
    ops = [n for n in flat(math.body) if n.kind == "op"]
    assert [n.op for n in ops] == ["assign", "assign", "load", "topk", "assign", "assign", "store", "store"]
    assert next(n for n in ops if n.op == "topk").attrs == {"group": 4}


FLOOR = LISTS.replace("best.add(a, 64 * j)", "best.add(a, 64 * j, floor=low)  # here").replace(
    "best.clear()", "best.clear()\nlow = min(load(x[rows(a), cols(a)]), axis=1)"
)


def test_floor() -> None:
    """A floor is one operand more."""
    kernel = expand_text(follow(FLOOR, "best: topk[64, 8] frag group(4)"))
    (op,) = [n for n in flat(role(kernel, "math").body) if n.kind == "op" and n.op == "topk"]
    assert op.operands["floor"] == Reg(name="low", dtype="f32")


def test_groups_by_default() -> None:
    """A topk compares at least the pairs of frag."""
    kernel = expand_text(follow(LISTS, "best: topk[64, 8] frag"))
    ops = [n for n in flat(role(kernel, "math").body) if n.kind == "op"]
    assert next(n for n in ops if n.op == "topk").attrs == {"group": 2}


CASES = [
    Case(
        "not cleared",
        "T010",
        follow(BODY.replace("best.clear()", "pass").replace("64 * j)\ntop", "64 * j)  # here\ntop")),
        ("clear",),
        alone=False,
    ),
    Case("take of nothing", "T010", follow("top, at = best.take()  # here\nstore(y[rows(top)], top)"), ("clear",)),
    Case(
        "cleared on one path",
        "T010",
        follow(
            "if t.i > 0:\n    best.clear()\nbest.add(a, 0)  # here",
            HEAD.replace("best", "b") + "\na2: f32[64, 64] frag\n" + HEAD,
        ),
        ("clear", "a"),
        alone=False,
    ),
    Case("value", "T020", follow(head=HEAD + " = 0.0  # here"), ("initial",), alone=False),
    Case("shape", "T015", follow(head="best: argmax[64, 64] frag  # here"), ("argmax[64]",), alone=False),
    Case("rows", "T015", follow(head="best: argmax[48] frag  # here"), ("48",), alone=False),
    Case("no layout", "T015", follow(head="best: argmax[64] group(4)  # here"), ("frag",), alone=False),
    Case("group", "T015", follow(head="best: argmax[64] frag group(3)  # here"), ("1, 2, 4 or 8",), alone=False),
    Case(
        "other attribute", "T015", follow(head="best: argmax[64] frag swizzle(128)  # here"), ("swizzle",), alone=False
    ),
    Case("entries of a topk", "T015", follow(head="best: topk[64] frag  # here"), ("topk[64, 8]",), alone=False),
    Case("too many entries", "T015", follow(head="best: topk[64, 33] frag  # here"), ("1 to 32",), alone=False),
    Case("single columns", "T015", follow(head="best: topk[64, 8] frag group(1)  # here"), ("2, 4 or 8",), alone=False),
    Case("rows of a topk", "T015", follow(head="best: topk[48, 8] frag  # here"), ("48",), alone=False),
    Case(
        "groups of a topk",
        "T015",
        follow(WIDE.replace("best.add(a, 0)", "best.add(a, 0)  # here"), "best: topk[64, 8] frag group(2)", 384),
        ("group(8)",),
        alone=False,
    ),
    Case("method", "T014", follow(BODY.replace("best.clear()", "best.reset()  # here")), ("reset",), alone=False),
    Case(
        "one result",
        "T011",
        follow(BODY.replace("top, at = best.take()", "top = best.take()  # here")),
        ("two results",),
    ),
    Case(
        "three results",
        "T003",
        follow(BODY.replace("top, at =", "top, at, more =").replace("take()", "take()  # here")),
        ("take",),
    ),
    Case(
        "sum of a list",
        "T099",
        follow(LISTS.replace("store(z", "u = sum(top, axis=1)  # here\nstore(z"), "best: topk[64, 8] frag"),
        ("quad",),
        alone=False,
    ),
    Case(
        "part of a list",
        "T016",
        follow(LISTS.replace("store(z", "u = top[:, 0 : 4]  # here\nstore(z"), "best: topk[64, 8] frag"),
        ("quad", "columns"),
        alone=False,
    ),
    Case(
        "a list and a tile",
        "T007",
        follow(LISTS.replace("store(z", "u = a[:, 0 : 8] + top  # here\nstore(z"), "best: topk[64, 8] frag"),
        ("frag", "quad"),
        alone=False,
    ),
    Case(
        "floor of an argmax",
        "T003",
        follow(BODY.replace("best.add(a, 64 * j)", "best.add(a, 64 * j, floor=a)  # here")),
        ("floor",),
    ),
    Case(
        "floor for each column",
        "T006",
        follow(FLOOR.replace("floor=low", "floor=a"), "best: topk[64, 8] frag"),
        ("f32[64, 1] frag", "f32[64, 64] frag"),
    ),
    Case(
        "floor of integers",
        "T006",
        follow(FLOOR.replace("floor=low", "floor=rows(low)"), "best: topk[64, 8] frag"),
        ("f32[64, 1] frag", "i32"),
    ),
    Case(
        "floor without a value",
        "T010",
        follow(
            FLOOR.replace("low = min(load(x[rows(a), cols(a)]), axis=1)\n", ""),
            "low: f32[64, 1] frag\nbest: topk[64, 8] frag",
        ),
        ("low",),
    ),
    Case("as a value", "T011", follow(BODY.replace("top, at = best.take()", "top = best  # here")), ("tracker",)),
    Case("take of a tile", "T014", follow(BODY.replace("best.take()", "a.take()  # here")), ("take",)),
    Case("columns", "T015", follow(BODY.replace("a, 64 * j)", "a[:, 0 : 8], 64 * j)  # here")), ("group(2)",)),
    Case(
        "dtype",
        "T005",
        follow(BODY.replace("best.add(a,", "best.add(bf16(a),").replace("64 * j)\ntop", "64 * j)  # here\ntop")),
        ("f32",),
    ),
    Case(
        "height",
        "T006",
        follow(
            BODY.replace("best.add(a, 64 * j)", "best.add(a, 64 * j)  # here"), head="best: argmax[128] frag group(4)"
        ),
        ("128",),
        alone=False,
    ),
    Case(
        "first column", "T011", follow(BODY.replace("best.add(a, 64 * j)", "best.add(a, a)  # here")), ("first column",)
    ),
    Case("arguments", "T003", follow(BODY.replace("best.add(a, 64 * j)", "best.add(a)  # here")), ("first_column",)),
]


@parametrised(CASES)
def test_misuse(case: Case) -> None:
    check(case)


IN_FLIGHT = """
kernel k(a: bf16[M, 64], b: bf16[64, 64], out y: i32[M]) for sm_90a:
    tiles once:
        m in cdiv(M, 64)
    role load: warps 4
    role math: warps 4
    pipeline p[2] load -> math:
        a: bf16[64, 64] swizzle(128)
        b: bf16[64, 64] swizzle(128)
    do load:
        for t in tiles:
            with p.fill() as s:
                tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, :])
                tma.load(s.b, b[:, :])
    do math:
        acc: f32[64, 64] frag
        best: argmax[64] frag group(4)
        for t in tiles:
            s = p.wait()
            best.clear()
            wgmma(acc, s.a, s.b.T, use_acc=False)
            best.add(acc, 0)  # here
            wgmma.wait(acc)
            p.release()
            top, at = best.take()
            r = t.m * 64 + rows(at)
            store(y[r], at, where=r < M)
"""


def test_in_flight() -> None:
    """A tile that a wgmma still writes is not followed."""
    check(Case("in flight", "D206", IN_FLIGHT, ("wgmma.wait(acc)",)))
    expand_text(
        IN_FLIGHT.replace(
            "            best.add(acc, 0)  # here\n            wgmma.wait(acc)",
            "            wgmma.wait(acc)\n            best.add(acc, 0)",
        )
    )
