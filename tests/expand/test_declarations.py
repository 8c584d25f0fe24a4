"""Refusals of declarations: constants, parameters, conditions, tiles, roles, pipelines, buffers, turns."""

from __future__ import annotations

import pytest

from tests.expand.cases import Case, check, parametrised
from tests.expand.kernels import GOOD_MATH, codes, expand, found, ring, rows

CASES = [
    Case("unknown target", "T021", rows("pass").replace("sm_90a:", "sm_99:  # here"), ("sm_99",)),
    Case("refused target", "T021", rows("pass").replace("sm_90a:", "sm_90:  # here"), ("sm_90a",)),
    Case("name twice", "T002", rows("pass", head="const A = 1\nconst A = 2  # here"), ("`A`",)),
    Case("kernel twice", "T002", rows("pass") + rows("pass").replace("sm_90a:", "sm_90a:  # here"), ("`k`",)),
    Case("choice not in its set", "T009", rows("pass", head="const A: {1, 2} = 3  # here"), ("`A = 3`",)),
    Case("excluded by where", "T009", rows("pass", head="const A: {1, 2} = 2\nwhere A == 1  # here"), ("A == 1",)),
    Case("constant from a dim", "T001", rows("pass", head="const A = M  # here"), ("`M`",)),
    Case(
        "unknown dtype",
        "T015",
        rows("pass", params="x: fp32[M, N], out y: f32[M, N]  # here".replace("  # here", "")),
        ("`fp32`", "f32"),
    ),
    Case(
        "dim nobody gives",
        "T013",
        rows("pass", head="where M > 1", params="x: f32[M, M * Q], out y: f32[M, M * Q]"),
        ("`Q`",),
    ),
    Case("extent of zero", "T015", rows("pass", params="x: f32[M, 0], out y: f32[M, N]"), ("`x`", "0")),
    Case("scalar output", "T015", rows("pass", params="x: f32[M, N], out y: f32"), ("`y`",)),
    Case(
        "tensor attribute",
        "T015",
        rows("pass", params="x: f32[M, N] swizzle(128), out y: f32[M, N]"),
        ("`swizzle`", "strided"),
    ),
    Case("strided", "T099", rows("pass", params="x: f32[M, N] strided, out y: f32[M, N]"), ("`strided`",)),
    Case("where of a number", "T005", rows("pass", head="where N + 1  # here"), ("conditions",)),
    Case("where of a tile index", "T001", rows("pass", head="where r > 0  # here"), ("`r`",)),
    Case("assume of what is no predicate", "T003", rows("pass", head="assume sorted(x)  # here"), ("increasing",)),
    Case("assume without bounds", "T003", rows("pass", head="assume within(x)  # here"), ("`within`", "3")),
    Case("assume of a dim", "T011", rows("pass", head="assume finite(M)  # here"), ("`finite`",)),
    Case("definition of a tensor", "T011", rows("pass", head="z = x  # here"), ("`z`", "`x`")),
    Case(
        "no tiles",
        "T018",
        "kernel k(out y: f32[M]) for sm_90a:  # here\n    role r: warps 1\n    do r:\n        pass\n",
        ("`k`", "tiles"),
    ),
    Case(
        "no role",
        "T018",
        "kernel k(out y: f32[M]) for sm_90a:  # here\n    tiles once:\n        m in M\n",
        ("`k`", "role"),
    ),
    Case("schedule", "T022", ring(tiles="tiles often:  # here\n    m in cdiv(M, 64)"), ("`often`", "persistent")),
    Case("clc", "T099", ring(tiles="tiles clc(load):  # here\n    m in cdiv(M, 64)"), ("`tiles clc`",)),
    Case("no axis", "T022", ring("pass", "pass", tiles="tiles once:  # here\n    m0 = K"), ("axis",)),
    Case("axis twice", "T002", ring(tiles="tiles once:\n    m in cdiv(M, 64)\n    m in 2  # here"), ("`m`",)),
    Case(
        "axis attribute",
        "T015",
        ring(tiles="tiles once:\n    m in cdiv(M, 64) tiled(2)  # here"),
        ("`tiled`", "grouped"),
    ),
    Case(
        "cluster",
        "T099",
        ring(tiles="tiles once:\n    m in cdiv(M, 64) cluster(2)\n    n in 2 cluster(2)  # here"),
        ("clusters",),
    ),
    Case(
        "axis hides a definition",
        "T002",
        ring(tiles="tiles once:\n    m in cdiv(M, 64)\n    kt = 3  # here"),
        ("`kt`",),
    ),
    Case("extent of a float", "T005", ring(tiles="tiles once:\n    m in 2.0  # here"), ("integer",)),
    Case(
        "role twice",
        "T002",
        ring(roles="role load: warps 4\nrole math: warps 4\nrole math: warps 4  # here"),
        ("`math`",),
    ),
    Case("warps of a dim", "T008", ring(roles="role load: warps 4\nrole math: warps K  # here"), ("`warps`",)),
    Case("no warps", "T008", ring(roles="role load: warps 4\nrole math: warps 0  # here"), ("at least 1",)),
    Case(
        "role without body",
        "T018",
        ring(roles="role load: warps 4\nrole math: warps 4\nrole idle: warps 1  # here"),
        ("`idle`", "do idle"),
    ),
    Case("body without role", "T001", ring() + "    do maths:  # here\n        pass\n", ("`maths`", "`math`")),
    Case("two bodies", "T002", ring() + "    do math:  # here\n        pass\n", ("`math`",)),
    Case(
        "instance hides a name", "T002", ring(var="kt").replace("do math as kt:", "do math as kt:  # here"), ("`kt`",)
    ),
    Case(
        "endpoint misspelt",
        "T001",
        ring(pipeline="pipeline p[2] lode -> math:  # here\n    a: bf16[64, 64] swizzle(128)"),
        ("`lode`", "`load`"),
    ),
    Case(
        "self ring",
        "T099",
        ring(pipeline="pipeline p[2] math -> math:  # here\n    a: bf16[64, 64] swizzle(128)"),
        ("producer",),
    ),
    Case(
        "stages of a dim",
        "T008",
        ring(pipeline="pipeline p[K] load -> math:  # here\n    a: bf16[64, 64] swizzle(128)"),
        ("stages",),
    ),
    Case(
        "store ring of two roles",
        "T015",
        ring(more="pipeline q[2] load + math -> store:  # here\n    c: bf16[64, 64]"),
        ("store ring",),
    ),
    Case("store ring without field", "T015", ring(more="pipeline q[2] math -> store  # here"), ("field",)),
    Case(
        "field twice",
        "T002",
        ring(pipeline="pipeline p[2] load -> math:\n    a: bf16[64, 64] swizzle(128)\n    a: bf16[64, 64]  # here"),
        ("`a`",),
    ),
    Case("buffer of a dim", "T008", ring(more="smem b: f32[K]  # here"), ("extent",)),
    Case("buffer without shape", "T015", ring(more="smem b: f32  # here"), ("`b`", "f32[1]")),
    Case("buffer attribute", "T015", ring(more="smem b: f32[4] linear  # here"), ("`linear`", "swizzle(n)")),
    Case("tmem", "T099", ring(more="smem b: f32[4] tmem  # here"), ("`tmem`",)),
    Case("swizzle of 48", "W708", ring(more="smem b: f32[8, 32] swizzle(48)  # here"), ("32, 64 and 128",)),
    Case("narrow rows", "W708", ring(more="smem b: bf16[8, 32] swizzle(128)  # here"), ("64 bytes", "swizzle(64)")),
    Case("rows of odd panels", "W708", ring(more="smem b: bf16[8, 96] swizzle(128)  # here"), ("192 bytes",)),
    Case("seven rows", "W708", ring(more="smem b: bf16[7, 64] swizzle(128)  # here"), ("7 rows",)),
    Case("padded and swizzled", "W708", ring(more="smem b: bf16[8, 64] swizzle(128) pad(8)  # here"), ("padded",)),
    Case("alias of nothing", "T001", ring(more="smem b: f32[4] alias(zz)  # here"), ("`alias`",)),
    Case("buffer takes a name", "T002", ring(more="smem kt: f32[4]  # here"), ("`kt`",)),
    Case("turn of no role", "T001", ring(more="turn x: maths  # here"), ("`maths`", "`math`")),
    Case("turn takes a name", "T002", ring(more="turn p: math  # here"), ("`p`",)),
    Case("guard of a dim", "T008", ring(more="smem b: f32[4] if K > 100  # here"), ("compile time",)),
    Case("guard of a number", "T005", ring(more="smem b: f32[4] if 3  # here"), ("bool",)),
]


@parametrised(CASES)
def test_refused(case: Case) -> None:
    check(case)


def test_frames_are_clean() -> None:
    """The kernels that the cases vary have no finding of their own."""
    assert codes(ring()) == []
    assert (
        codes(rows("v = load(x[t.r, cols(v)], where=cols(v) < N)\nstore(y[t.r, cols(v)], v, where=cols(v) < N)")) == []
    )


GUARDED = """
const FLAG: {False, True} = False
kernel k(x: f32[M, 128], out y: f32[M, 128], out z: f32[M, 128] if FLAG) for sm_90a:
    assume finite(x)
    tiles once:
        m in M
    role r: warps 1
    smem b: f32[128] if FLAG
    do r:
        v: f32[1, 128] spread(4)
        for t in tiles:
            v = load(x[t.m, cols(v)])
            store(y[t.m, cols(v)], v)
            if FLAG:
                store(z[t.m, cols(v)], v)
                store(b[cols(v)], v)
"""


@pytest.mark.parametrize(("on", "tensors", "buffers"), [(False, 2, 0), (True, 3, 1)])
def test_declarations_under_a_constant(on: bool, tensors: int, buffers: int) -> None:
    """``… if CONST`` makes a parameter or buffer exist only then; the branch not taken is not typed."""
    kernel = expand(GUARDED, {"FLAG": on})
    assert len(kernel.tensors) == tensors
    assert len(kernel.buffers) == buffers


def test_constants_are_asked_for_by_name() -> None:
    from cake.expand.kernel import expand_kernel
    from cake.ir.parser import parse

    file = parse(GUARDED)
    kernel, diagnostics = expand_kernel(file, file.kernels[0], {"FLAGS": True})
    assert kernel is None
    assert [(d.code, "`FLAG`" in (d.help or "")) for d in diagnostics] == [("T001", True)]
    for wrong in ({"FLAG": 1}, {"FLAG": 2}):
        assert [d.code for d in expand_kernel(file, file.kernels[0], wrong)[1]] == ["T009"]
    assert [d.code for d in expand_kernel(file, file.kernels[0], {}, "sm_80")[1]] == ["T021"]


def test_several_mistakes_in_one_run() -> None:
    """Independent mistakes are reported together; what follows from one is not."""
    text = ring(
        more="smem b: f33[4]\nturn x: maths",
        math=GOOD_MATH + "g = h + 1\nz = g + g\nstore(b[0], z)\nacc = undefined",
    )
    reported = [(d.code, d.message.split("`")[1]) for d in found(text)]
    assert ("T015", "f33") in reported
    assert ("T001", "maths") in reported
    assert ("T001", "h") in reported
    assert ("T001", "undefined") in reported
    assert len(reported) == 4, reported


CASCADES = [
    (
        "wait into a taken name",
        ring(math="for j in range(kt):\n    kt = p.wait()\n    f = ldmatrix(kt.a)\n    p.release()"),
        ["T002"],
    ),
    (
        "loop with an unknown bound",
        ring(math="for j in range(kk):\n    s = p.wait()\n    p.release(keep=1)\nq = s\np.release()"),
        ["T001"],
    ),
    (
        "fill of an unknown field",
        ring(
            "for j in range(kt):\n    with p.fill() as s:\n        tma.load(s.aa, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])"
        ),
        ["T014"],
    ),
    ("condition with an unknown name", ring(math=GOOD_MATH + "\nif qq > 1:\n    z = 1\ny = z + 1"), ["T001"]),
    (
        "release with an unknown argument",
        ring(math="for j in range(kt):\n    s = p.wait()\n    p.release(keeping=1)"),
        ["T003"],
    ),
    ("constant that cannot be evaluated", ring(head="const A = BB\nconst C = A + 1", more="smem u: f32[C]"), ["T001"]),
    ("pipeline that cannot be declared", ring(pipeline="pipeline p[2] lode -> math:\n    a: bf16[64, 64]"), ["T001"]),
]


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in CASCADES], ids=[c[0] for c in CASCADES])
def test_consequences_are_not_reported(text: str, expected: list[str]) -> None:
    assert codes(text) == expected, [(d.code, d.message) for d in found(text)]
