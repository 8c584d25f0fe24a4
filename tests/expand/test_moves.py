"""Refusals of block moves and matrix operations: TMA rules, operands, products, registers in flight, Rule S."""

from __future__ import annotations

from tests.expand.cases import Case, check, parametrised
from tests.expand.kernels import GOOD_LOAD, GOOD_MATH, GOOD_PRODUCT, found, product, ring

RING = "pipeline p[2] load -> math:\n    a: bf16[64, 64] swizzle(128)"
STEP = "for j in range(kt):\n    s = p.wait()\n    {}\n    p.release()"


def step(line: str, **more: str) -> str:
    """A product whose loop body is one line between wait and release."""
    return product(STEP.format(line.replace("\n", "\n    ")), **more)


def box(line: str, **more: str) -> str:
    """A ring whose fill is one line."""
    return ring("for j in range(kt):\n    with p.fill() as s:\n        " + line, **more)


def narrow(text: str) -> str:
    """The same kernel with the promise about K taken away."""
    return text.replace("    where K % 8 == 0\n", "    where K > 0\n")


WIDE = "pipeline p[2] load -> math:\n    a: bf16[64, {}]{}"

CASES = [
    Case(
        "stride",
        "W707",
        narrow(
            ring(
                "for j in range(kt):\n    with p.fill() as s:\n        tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])  # here"
            )
        ),
        ("`a`", "K % 8 == 0"),
    ),
    Case(
        "column it starts at",
        "W707",
        box("tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 + 4 : j * 64 + 68])  # here"),
        ("multiple of 8", "16 bytes"),
    ),
    Case(
        "inner box",
        "W707",
        box(
            "tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 4 : j * 4 + 4])  # here",
            pipeline=WIDE.format(4, ""),
            math=GOOD_MATH.replace("    f = ldmatrix(s.a)\n", ""),
        ),
        ("16 bytes", "4 bf16"),
    ),
    Case(
        "bool tensor",
        "W707",
        box(
            "tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])  # here",
            pipeline="pipeline p[2] load -> math:\n    a: bool[64, 64]",
            params="a: bool[M, K], out c: bf16[M, 64]",
            math=GOOD_MATH.replace("    f = ldmatrix(s.a)\n", ""),
        ),
        ("bool",),
    ),
    Case(
        "six axes",
        "W707",
        box(
            "tma.load(s.a, z[0, 0, 0, 0, t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])  # here",
            params="a: bf16[M, K], z: bf16[2, 2, 2, 2, M, K], out c: bf16[M, 64]",
        ),
        ("5 axes", "`z`"),
    ),
    Case(
        "long row",
        "W707",
        box(
            "tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, 0 : 512])  # here",
            pipeline=WIDE.format(512, ""),
            math=GOOD_MATH.replace("    f = ldmatrix(s.a)\n", ""),
        ),
        ("512", "swizzle"),
    ),
    Case(
        "padded",
        "W707",
        box(
            "tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])  # here",
            pipeline=WIDE.format(64, " pad(8)"),
        ),
        ("padded", "p.a"),
    ),
    Case(
        "half rows",
        "W707",
        box("tma.load(s.a[:, 0 : 32], a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 32])  # here"),
        ("whole rows",),
    ),
    Case(
        "start inside an atom",
        "W708",
        box("tma.load(s.a[4 : 12], a[t.m * 64 : t.m * 64 + 8, j * 64 : j * 64 + 64])  # here"),
        ("row 4", "atom"),
    ),
    Case(
        "no TMA",
        "W711",
        ring(target="sm_80")
        .replace(
            "        tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])",
            "        tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])  # here",
        )
        .replace("# here  # here", "# here"),
        ("sm_80", "cp_async"),
    ),
    Case(
        "global to global",
        "T013",
        box("tma.load(c[0 : 64, 0 : 64], a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])  # here"),
        ("shared memory",),
    ),
    Case(
        "transposed block",
        "T013",
        box("tma.load(s.a.T, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])  # here"),
        ("`.T`",),
    ),
    Case(
        "index tiles",
        "T013",
        box("tma.load(s.a, a[rows(z), cols(z)])  # here").replace(
            "    do load:\n", "    do load:\n        z: bf16[64, 64] frag = 0.0\n"
        ),
        ("index tiles",),
    ),
    Case("unsliced axis", "T013", box("tma.load(s.a, a)  # here"), ("`a`", "constant extents")),
    Case(
        "another dtype",
        "T005",
        box(
            "tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])  # here",
            params="a: f16[M, K], out c: bf16[M, 64]",
        ),
        ("f16", "bf16"),
    ),
    Case(
        "another shape",
        "T006",
        box("tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 32])  # here"),
        ("[64, 64]", "[64, 32]"),
    ),
    Case(
        "axis kept",
        "T006",
        box("tma.load(s.h, a[t.m : t.m + 1, j * 64 : j * 64 + 64])  # here", pipeline=RING + "\n    h: bf16[64]"),
        ("axes", "scalar"),
    ),
    Case(
        "line of another length",
        "T006",
        box("tma.load(s.h, a[t.m : t.m + 8, j * 64 : j * 64 + 64])  # here", pipeline=RING + "\n    h: bf16[500]"),
        ("[500]", "[8, 64]"),
    ),
    Case(
        "line of too many rows",
        "W707",
        box("tma.load(s.h, a[t.m : t.m + 512, j * 64 : j * 64 + 64])  # here", pipeline=RING + "\n    h: bf16[32768]"),
        ("256", "512"),
    ),
    Case("output loaded", "O504", box("tma.load(s.a, c[t.m * 64 : t.m * 64 + 64, :])  # here"), ("`c`", "inout")),
    Case(
        "multicast of no axis",
        "T003",
        box("tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64], multicast=q)  # here"),
        ("`multicast=`", "m"),
    ),
    Case(
        "reduction",
        "T003",
        ring(
            math=GOOD_MATH + "\ntma.reduce(c[0 : 64, 0 : 64], b, mul)  # here", more="smem b: bf16[64, 64] swizzle(128)"
        ),
        ("add, min or max",),
    ),
    Case(
        "store to an input",
        "T013",
        ring(math=GOOD_MATH + "\ntma.store(a[0 : 64, 0 : 64], b)  # here", more="smem b: bf16[64, 64] swizzle(128)"),
        ("`a`", "out"),
    ),
    Case(
        "prefetch of shared memory",
        "T013",
        ring(math=GOOD_MATH + "\ntma.prefetch(b)  # here", more="smem b: bf16[64, 64] swizzle(128)"),
        ("`tma.prefetch`",),
    ),
    Case("prefetch of too much", "W707", ring(math=GOOD_MATH + "\ntma.prefetch(a[0 : 512, 0 : 64])  # here"), ("256",)),
    # ---- matrix operands
    Case(
        "missing transpose",
        "T012",
        step("wgmma(acc, s.a, s.b, use_acc=False)  # here\nwgmma.wait(acc)"),
        ("`K`", "`N`", ".T"),
    ),
    Case(
        "contracted lengths",
        "T012",
        step(
            "wgmma(acc, s.a[:, 0 : 32], s.b.T, use_acc=False)  # here\nwgmma.wait(acc)", before="acc: f32[64, 64] frag"
        ),
        ("32", "64"),
    ),
    Case(
        "accumulator shape",
        "T006",
        step("wgmma(acc, s.a, s.b.T, use_acc=False)  # here\nwgmma.wait(acc)", before="acc: f32[64, 128] frag"),
        ("[64, 64]", "[64, 128]"),
    ),
    Case(
        "accumulator of bf16",
        "T007",
        step("wgmma(acc, s.a, s.b.T, use_acc=False)  # here\nwgmma.wait(acc)", before="acc: bf16[64, 64] frag"),
        ("`wgmma`", "bf16"),
    ),
    Case(
        "wgmma on one warp",
        "W709",
        step(
            "wgmma(acc, s.a, s.b.T, use_acc=False)  # here\nwgmma.wait(acc)",
            roles="role load: warps 4\nrole math: warps 1",
        ),
        ("4 warps", "`math`"),
    ),
    Case(
        "mma on four warps",
        "W709",
        step("mma(acc, s.a, s.b.T)  # here", before="acc: f32[64, 64] frag = 0.0"),
        ("1 warp", "`math`"),
    ),
    Case(
        "no swizzle",
        "W708",
        ring(
            GOOD_LOAD,
            "for j in range(kt):\n    s = p.wait()\n    wgmma(acc, s.a, b, use_acc=False)  # here\n    wgmma.wait(acc)\n    p.release()",
            more="smem b: bf16[64, 64]",
        ).replace("    do math:\n", "    do math:\n        acc: f32[64, 64] frag\n"),
        ("`b`", "swizzle(128)"),
    ),
    Case(
        "row inside an atom",
        "W708",
        step("wgmma(acc, s.a, s.b[4 : 12].T, use_acc=False)  # here\nwgmma.wait(acc)", before="acc: f32[64, 8] frag"),
        ("row 4",),
    ),
    Case(
        "column inside a step",
        "W708",
        step("wgmma(acc, s.a[:, 8 : 24], s.b[:, 8 : 24].T, use_acc=False)  # here\nwgmma.wait(acc)"),
        ("column 8",),
    ),
    Case(
        "contraction of 24",
        "W709",
        step("wgmma(acc, s.a[:, 0 : 24], s.b[:, 0 : 24].T, use_acc=False)  # here\nwgmma.wait(acc)"),
        ("24",),
    ),
    Case(
        "mixed operands",
        "T005",
        step("wgmma(acc, s.a, x.T, use_acc=False)  # here\nwgmma.wait(acc)", more="smem x: f16[64, 64] swizzle(128)"),
        ("bf16", "f16"),
    ),
    Case(
        "b in registers",
        "T011",
        step(
            "wgmma(acc, s.a, x, use_acc=False)  # here\nwgmma.wait(acc)",
            before="acc: f32[64, 64] frag\nx: bf16[64, 64] frag = 0.0",
        ),
        ("`wgmma`", "shared"),
    ),
    Case(
        "tensor operand", "T013", step("wgmma(acc, s.a, b, use_acc=False)  # here\nwgmma.wait(acc)"), ("shared memory",)
    ),
    Case("accumulates nothing", "T010", step("wgmma(acc, s.a, s.b.T)  # here\nwgmma.wait(acc)"), ("`acc`", "use_acc=")),
    Case("waits for nothing", "T024", step("pass\nwgmma.wait(acc)  # here"), ("`acc`",)),
    Case(
        "waits for a name and a lag",
        "T003",
        step("wgmma(acc, s.a, s.b.T, use_acc=False)\nwgmma.wait(acc, keep=1)  # here\nwgmma.wait(acc)"),
        ("`wgmma.wait`",),
    ),
    Case(
        "fragment of f32",
        "T005",
        ring(math=GOOD_MATH + "\nf = ldmatrix(b)  # here", more="smem b: f32[64, 64]"),
        ("f32",),
    ),
    Case(
        "fragment of a tensor",
        "T013",
        ring(math=GOOD_MATH + "\ng = ldmatrix(a[0 : 64, 0 : 64])  # here"),
        ("`ldmatrix`",),
    ),
    Case(
        "fragment of 32 rows",
        "T015",
        ring(math=GOOD_MATH + "\ng = ldmatrix(b[0 : 32])  # here", more="smem b: bf16[64, 64] swizzle(128)"),
        ("[32, 64]",),
    ),
    Case(
        "fragment from row 4",
        "W708",
        ring(math=GOOD_MATH + "\ng = ldmatrix(b[4 : 68])  # here", more="smem b: bf16[72, 64] swizzle(128)"),
        ("4",),
    ),
    Case(
        "fragment stored as f32",
        "T005",
        ring(math=GOOD_MATH + "\nstmatrix(b, z)  # here", more="smem b: bf16[64, 64] swizzle(128)").replace(
            "    do math:\n", "    do math:\n        z: f32[64, 64] frag = 0.0\n"
        ),
        ("bf16(…)",),
    ),
    Case(
        "spread stored as fragment",
        "T007",
        ring(math=GOOD_MATH + "\nstmatrix(b, z)  # here", more="smem b: bf16[64, 64] swizzle(128)").replace(
            "    do math:\n", "    do math:\n        z: bf16[64, 64] spread(8) = 0.0\n"
        ),
        ("frag",),
    ),
    Case(
        "fragment of another shape",
        "T006",
        ring(math=GOOD_MATH + "\nstmatrix(b[0 : 32], z)  # here", more="smem b: bf16[64, 64] swizzle(128)").replace(
            "    do math:\n", "    do math:\n        z: bf16[64, 64] frag = 0.0\n"
        ),
        ("[64, 64]", "[32, 64]"),
    ),
    Case(
        "transposed fragment as b",
        "T099",
        product(
            "for j in range(kt):\n    s = p.wait()\n    mma(acc, s.a[0 : 16, 0 : 16], x)  # here\n    p.release()",
            before="acc: f32[16, 16] frag = 0.0\nx: bf16[16, 16] frag = 0.0",
            roles="role load: warps 4\nrole math: warps 1",
        ),
        ("`mma`",),
    ),
    Case("tcgen05", "T099", step("tcgen05.mma(acc, s.a, s.b.T)  # here"), ("tcgen05",)),
    Case(
        "wgmma on Blackwell",
        "W711",
        step("wgmma(acc, s.a, s.b.T, use_acc=False)  # here\nwgmma.wait(acc)", target="sm_100a"),
        ("`wgmma`", "sm_100a", "sm_90a"),
    ),
    # ---- in flight
    Case(
        "read in flight",
        "D206",
        step("wgmma(acc, s.a, s.b.T, use_acc=False)\nz = acc + 1.0  # here\nwgmma.wait(acc)"),
        ("`acc`", "wgmma.wait(acc)"),
    ),
    Case(
        "written in flight",
        "D206",
        step("wgmma(acc, s.a, s.b.T, use_acc=False)\nacc = 0.0  # here\nwgmma.wait(acc)"),
        ("`acc`",),
    ),
    Case(
        "operand rewritten",
        "D206",
        step(
            "x = bf16(acc)\nwgmma(d, x, s.b, use_acc=False)\nx = bf16(acc)  # here\nwgmma.wait(d)",
            before="acc: f32[64, 64] frag = 0.0\nd: f32[64, 64] frag\nx: bf16[64, 64] frag",
        ),
        ("`x`",),
    ),
    Case(
        "result as operand",
        "D206",
        step(
            "wgmma(acc, x, s.b, use_acc=False)\nwgmma(d, x, s.b, use_acc=False)\nwgmma.wait(keep=1)\nx = bf16(d)  # here\nwgmma.wait(d)",
            before="acc: f32[64, 64] frag\nd: f32[64, 64] frag\nx: bf16[64, 64] frag = 0.0",
        ),
        ("`d`",),
    ),
    Case(
        "one group too many kept",
        "D206",
        product(
            GOOD_PRODUCT.replace("wgmma.wait(acc)\n", "wgmma.wait(keep=1)\n").replace(
                "store(c", "z = acc * 2.0  # here\nstore(c"
            )
        ),
        ("`acc`",),
    ),
    Case(
        "in flight over the back edge",
        "D206",
        step("acc = acc + 1.0  # here\nwgmma(acc, s.a, s.b.T)", before="acc: f32[64, 64] frag = 0.0"),
        ("`acc`",),
    ),
    Case(
        "condition around a wgmma",
        "W713",
        product(
            "for j in range(kt):\n    s = p.wait()\n    wgmma(acc, s.a, s.b.T, use_acc=j > 0)\n    if j > 3:  # here\n        wgmma(d, s.a, s.b.T)\n    wgmma.wait(keep=0)\n    p.release()",
            before="acc: f32[64, 64] frag\nd: f32[64, 64] frag = 0.0",
        ),
        ("split",),
    ),
    Case(
        "condition around a wait",
        "W713",
        product(
            "for j in range(kt):\n    s = p.wait()\n    wgmma(acc, s.a, s.b.T, use_acc=j > 0)\n    if j > 3:  # here\n        wgmma.wait(acc)\n    wgmma.wait(keep=0)\n    p.release()"
        ),
        ("split",),
    ),
]


@parametrised(CASES)
def test_refused(case: Case) -> None:
    check(case)


def test_frame_is_clean() -> None:
    assert found(product(GOOD_PRODUCT)) == []


def test_rule_s_allows_idle_conditions() -> None:
    """A condition that is entered and left with nothing in flight may contain a wgmma, and a split decides conditions."""
    idle = step("if j > 3:\n    wgmma(acc, s.a, s.b.T)\n    wgmma.wait(acc)", before="acc: f32[64, 64] frag = 0.0")
    assert found(idle) == []
    text = """
    for j in range(kt) split(1):
        s = p.wait()
        wgmma(acc, s.a, s.b.T, use_acc=j > 0)
        if j > 0:
            wgmma.wait(keep=1)
            p.release(keep=1)
    wgmma.wait(acc)
    p.release()
    """
    assert "W713" in [d.code for d in found(product(text.replace(" split(1)", "")))]
    assert found(product(text)) == []
