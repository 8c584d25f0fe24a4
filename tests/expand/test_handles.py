"""Handles and names: what is released on which path, what a rebound handle takes along, and what may not be assigned."""

from __future__ import annotations

from tests.expand.cases import Case, check, parametrised
from tests.expand.kernels import GOOD_LOAD, GOOD_MATH, expand, flat, found, ring, role, rows

FIELD = "pipeline {}[{}] load -> math:\n    a: bf16[64, 64] swizzle(128)"
PLAIN = FIELD.format("p", 2)


def loop(*lines: str) -> str:
    """A consumer whose loop over ``kt`` has these lines."""
    return ring(math="for j in range(kt):\n    " + "\n    ".join(lines))


CASES = [
    Case(
        "another name of a released stage",
        "D212",
        loop("s = p.wait()", "r = s", "p.release()", "f = ldmatrix(s.a)  # here"),
        ("`s`", "`p`"),
    ),
    Case(
        "a block of a released stage",
        "D212",
        loop("s = p.wait()", "y = s.a", "p.release()", "f = ldmatrix(y)  # here"),
        ("`p`",),
    ),
    Case("kept after its release", "D212", loop("s = p.wait()", "p.release()", "r = s  # here"), ("`s`",)),
    Case(
        "released an iteration ago",
        "D212",
        ring(
            head="where K > 64",
            math="s = p.wait()\nfor j in range(kt - 1):\n    f = ldmatrix(s.a)  # here\n    n = p.wait()\n    p.release(keep=1)\np.release()",
        ),
        ("`s`",),
    ),
    Case(
        "released on one path",
        "D212",
        loop(
            "s = p.wait()",
            "r = p.wait()",
            "if j > 3:",
            "    p.release(keep=1)",
            "else:",
            "    p.release(keep=1)",
            "f = ldmatrix(s.a)  # here",
            "p.release()",
        ),
        ("`s`",),
    ),
    Case(
        "a block of an older stage",
        "T010",
        loop("s = p.wait()", "y = s.a[0 : 64]", "s = p.wait()", "f = ldmatrix(y)  # here", "p.release()"),
        ("`y`",),
    ),
    Case(
        "a block of a stage of the last iteration",
        "T010",
        ring(
            head="where K > 64",
            math="s = p.wait()\ny = s.a\nfor j in range(kt - 1):\n    f = ldmatrix(y)  # here\n    p.release()\n    s = p.wait()\np.release()",
        ),
        ("`y`",),
    ),
    Case("loop variable", "T002", loop("s = p.wait()", "j = j + 1  # here", "p.release()"), ("`j`",)),
    Case(
        "loop variable again",
        "T002",
        loop("s = p.wait()", "for j in range(3):  # here", "    pass", "p.release()"),
        ("`j`",),
    ),
    Case("unrolled variable", "T002", rows("for i in unroll(2):\n    i = 7  # here"), ("`i`",)),
    Case("instance", "T002", ring(var="w", math="w = 3  # here\n" + GOOD_MATH), ("`w`", "instance")),
    Case("tile as loop variable", "T020", rows("for v in range(3):  # here\n    pass"), ("`v`",)),
    Case(
        "tile as stage",
        "T020",
        ring(
            math="z: f32[64, 64] frag\n" + GOOD_MATH + "\nwith q.fill() as z:  # here\n    pass",
            pipeline=PLAIN + "\npipeline q[2] math -> store:\n    c: bf16[64, 64] swizzle(128)",
        ),
        ("`z`",),
    ),
    Case(
        "read in its own fill",
        "D201",
        ring(
            "for j in range(kt):\n    with p.fill() as s:\n        y = load(s.a[0, 0])  # here\n        tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])"
        ),
        ("being filled",),
    ),
    Case(
        "page of a buffer",
        "O503",
        ring(math=GOOD_MATH + "\ng = ldmatrix(b[t.m])  # here", more="smem b: bf16[2, 64, 64] swizzle(128)"),
        ("`b`", "t.m"),
    ),
    Case("padding of nothing", "T015", ring(more="smem b: bf16[2, 64] pad  # here"), ("pad(n)",)),
    Case("tile past the registers", "T015", rows("z: f32[64, 1024] frag  # here"), ("512 registers", "255")),
    Case("buffer past the memory", "W701", ring(more="smem b: f32[1024, 64]  # here"), ("`b`", "262,144")),
    Case(
        "bound past i32", "T023", rows("for i in range(99999999999999):  # here\n    pass"), ("99999999999999", "i32")
    ),
    Case("scalar past i32", "T023", rows("q = 100000000000  # here"), ("i32", "i64")),
    Case("element past u8", "T023", rows("z: u8[1, 512] spread(4) = 300  # here"), ("300", "u8")),
    Case("cast past i32", "T023", rows("q = i32(99999999999)  # here"), ("i32",)),
    Case("division by zero", "T023", rows("q = t.r // 0  # here"), ("`//`",)),
]


@parametrised(CASES)
def test_refused(case: Case) -> None:
    check(case)


def test_each_path_releases_for_itself() -> None:
    """What one side of a condition gave back is still held on the other."""
    assert (
        found(loop("s = p.wait()", "if j > 3:", "    p.release()", "else:", "    f = ldmatrix(s.a)", "    p.release()"))
        == []
    )


def test_a_handle_carried_round_a_loop() -> None:
    """The stage of the last iteration under its own name: released oldest first, one iteration late."""
    text = ring(
        head="where K > 64",
        math="s = p.wait()\nfor j in range(kt - 1):\n    f = ldmatrix(s.a)\n    n = p.wait()\n    p.release(keep=1)\n    s = n\np.release()",
    )
    assert found(text) == []
    backs = [n.slot.back for n in flat(role(expand(text), "math").body) if n.kind == "arrive"]
    assert backs == [2, 1]


def test_one_name_for_stages_of_two_rings() -> None:
    """Each ring has its own length, so each has its own cursor."""
    text = ring(
        GOOD_LOAD + "\nwith q.fill() as s:\n    tma.load(s.a, a[0 : 64, 0 : 64])",
        math=GOOD_MATH + "\ns = q.wait()\nf = ldmatrix(s.a)\nq.release()",
        more=FIELD.format("q", 3),
    )
    assert found(text) == []
    cursors = role(expand(text), "math").cursors
    assert cursors == {"p.wait": 2, "s": 2, "q.wait": 3, "s.q": 3}


def test_wide_literals_in_wide_types() -> None:
    assert found(rows("q = i64(99999999999)\nz: u8[1, 512] spread(4) = 255")) == []
