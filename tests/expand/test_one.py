"""Pipelines whose stages go to one instance each, `skip`, and parts of the tiles: what is said where they are misused."""

from __future__ import annotations

from cake.compiler import check_text, expand_text
from tests.expand.cases import Case, check, parametrised
from tests.expand.kernels import flat, role

SOURCE = """
kernel k(a: bf16[M, 64], out c: bf16[M, 64]) for sm_90a:
    tiles persistent:
        m in cdiv(M, 64)
    role load: warps 4
    role math[2]: warps 4
    pipeline p[3] load -> one math:
        a: bf16[64, 64] swizzle(128)
    turn order: math
    do load:
        for t in tiles:
            with p.fill() as s:
                tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, :])
    do math as w:
        f: bf16[64, 64] frag
        p.skip(w)
        for t in tiles[w::2]:
            with order:
                s = p.wait()
            f = ldmatrix(s.a)
            p.release()
            p.skip(1)
            r = t.m * 64 + rows(f)
            store(c[r, cols(f)], f, where=r < M)
"""


def changed(old: str, new: str) -> str:
    """The good kernel with one text changed."""
    assert SOURCE.count(old) == 1, old
    return SOURCE.replace(old, new)


def test_expansion() -> None:
    """Every second tile; a skip moves the cursor; a stage is free when one instance has given it back."""
    assert check_text(SOURCE) == []
    kernel = expand_text(SOURCE)
    assert kernel.barrier("p.empty").count == 4
    body = flat(role(kernel, "math").body)
    skips = [n for n in body if n.kind == "cursor" and n.count is not None]
    assert [n.reason for n in skips] == ["skip", "skip"]
    walk = next(n for n in body if n.kind == "for")
    assert (walk.lo.op, walk.step.op) == ("+", "*")


CASES = [
    Case("skip of a shared pipeline", "T024", changed("-> one math", "-> math").replace("p.skip(w)", "p.skip(w)  # here"), ("one math",), alone=False),
    Case("skip while held", "P109", changed("            p.release()\n", "").replace("p.skip(1)", "p.skip(1)  # here\n            p.release()"), ("held",), alone=False),
    Case("skip back", "T008", changed("p.skip(1)", "p.skip(-1)  # here"), ("back",)),
    Case("skip without a number", "T003", changed("p.skip(1)", "p.skip()  # here"), ("`n`",)),
    Case("skip by the producer", "T024", changed("            with p.fill() as s:", "            p.skip(1)  # here\n            with p.fill() as s:"), ("consumer",)),
    Case("part without a step", "T022", changed("tiles[w::2]", "tiles[w:]").replace("tiles[w:]:", "tiles[w:]:  # here"), ("tiles[w::2]",), alone=False),
    Case("part with an end", "T022", changed("tiles[w::2]:", "tiles[w:4:2]:  # here"), ("tiles[w::2]",), alone=False),
    Case("first too large", "T022", changed("tiles[w::2]:", "tiles[w + 1::2]:  # here"), ("below 2",), alone=False),
    Case("part of one tile", "T022", changed("tiles persistent", "tiles once").replace("tiles[w::2]:", "tiles[w::2]:  # here"), ("persistent",), alone=False),
    Case("part of drawn tiles", "T022", changed("tiles persistent", "tiles dynamic(load)"), ("persistent",), alone=False),
    Case("part of filtered tiles", "T099", changed("        m in cdiv(M, 64)\n", "        m in cdiv(M, 64)\n        where m > 3\n").replace("tiles[w::2]:", "tiles[w::2]:  # here"), ("where",), alone=False),
    Case("one of the store engine", "T015", changed("    turn order: math\n", "    pipeline o[2] math -> one store:\n        c: bf16[64, 64] swizzle(128)\n    turn order: math\n"), ("one role",), alone=False),
]  # fmt: skip


@parametrised(CASES)
def test_misuse(case: Case) -> None:
    check(case)
