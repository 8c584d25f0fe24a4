"""Small kernels that tests vary: a row kernel, a ring of TMA loads, a product, and a ring of bulk stores."""

from __future__ import annotations

import textwrap

from cake.compiler import check_text
from cake.diagnostics import Diagnostic
from cake.expand.constants import Value
from cake.expand.kernel import expand_kernel
from cake.ir import expanded as x
from cake.ir.parser import parse

MARK = "# here"
"""A comment on the line where a diagnostic is expected."""


def indented(text: str, levels: int) -> str:
    """Dedent a block and indent it by so many levels."""
    return textwrap.indent(textwrap.dedent(text).strip("\n"), "    " * levels)


def rows(body: str, *, head: str = "", warps: str = "4", params: str = "x: f32[M, N], out y: f32[M, N]") -> str:
    """A row kernel: ``body`` runs for each row ``t.r``, with a tile ``v: f32[1, 512] spread(4)`` of one row."""
    return "\n".join(
        (
            f"kernel k({params}) for sm_90a:",
            indented(head, 1) if head else "    where N % 4 == 0",
            "    tiles once:",
            "        r in M",
            f"    role row: warps {warps}",
            "    do row:",
            "        v: f32[1, 512] spread(4)",
            "        for t in tiles:",
            indented(body, 3),
            "",
        )
    )


GOOD_LOAD = """
for j in range(kt):
    with p.fill() as s:
        tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])
"""

GOOD_MATH = """
for j in range(kt):
    s = p.wait()
    f = ldmatrix(s.a)
    p.release()
"""


def ring(
    load: str = GOOD_LOAD,
    math: str = GOOD_MATH,
    *,
    params: str = "a: bf16[M, K], out c: bf16[M, 64]",
    head: str = "",
    pipeline: str = "pipeline p[2] load -> math:\n    a: bf16[64, 64] swizzle(128)",
    roles: str = "role load: warps 4\nrole math: warps 4",
    var: str = "",
    more: str = "",
    target: str = "sm_90a",
    tiles: str = "tiles once:\n    m in cdiv(M, 64)",
) -> str:
    """A ring ``p`` of 64 x 64 bf16 stages, filled by TMA in ``load`` and taken by ``math``; trip count ``kt``."""
    return "\n".join(
        (
            f"kernel k({params}) for {target}:",
            "    where K % 8 == 0",
            indented(head, 1),
            "    kt = cdiv(K, 64)",
            indented(tiles, 1),
            indented(roles, 1),
            indented(pipeline, 1),
            indented(more, 1),
            "    do load:",
            "        for t in tiles:",
            indented(load, 3),
            f"    do math{' as ' + var if var else ''}:",
            "        for t in tiles:",
            indented(math, 3),
            "",
        )
    )


PRODUCT_LOAD = """
for j in range(kt):
    with p.fill() as s:
        tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])
        tma.load(s.b, b[t.n * 64 : t.n * 64 + 64, j * 64 : j * 64 + 64])
"""


def product(math: str, *, load: str = PRODUCT_LOAD, before: str = "acc: f32[64, 64] frag", **more: str) -> str:
    """The frame of a product: a ring ``p`` of A and B stages; ``math`` is the body of the consumer's tile walk."""
    body = ring(
        load,
        "pass",
        params=more.pop("params", "a: bf16[M, K], b: bf16[N, K], out c: f32[M, N]"),
        pipeline="pipeline p[4] load -> math:\n    a: bf16[64, 64] swizzle(128)\n    b: bf16[64, 64] swizzle(128)",
        tiles="tiles once:\n    m in cdiv(M, 64)\n    n in cdiv(N, 64)",
        head=more.pop("head", "where N % 8 == 0"),
        **more,
    )
    head, _ = body.split("        for t in tiles:\n            pass")
    return head + indented(before, 2) + "\n        for t in tiles:\n" + indented(math, 3) + "\n"


GOOD_PRODUCT = """
for j in range(kt):
    s = p.wait()
    wgmma(acc, s.a, s.b.T, use_acc=j > 0)
    wgmma.wait(keep=1)
    p.release(keep=1)
wgmma.wait(acc)
p.release()
store(c[t.m * 64 + rows(acc), t.n * 64 + cols(acc)], acc, where=t.m * 64 + rows(acc) < M and t.n * 64 + cols(acc) < N)
"""


def found(text: str) -> list[Diagnostic]:
    """Every finding of a text."""
    return check_text(text, "test.cake")


def errors(text: str) -> list[Diagnostic]:
    """The blocking findings of a text."""
    return [d for d in found(text) if d.severity == "error"]


def codes(text: str) -> list[str]:
    """The codes of a text's findings, in order."""
    return [d.code for d in found(text)]


def marked(text: str) -> int:
    """The line that carries the mark."""
    lines = [n for n, line in enumerate(text.splitlines(), 1) if MARK in line]
    assert len(lines) == 1, "one line of the text is marked"
    return lines[0]


def expand(text: str, constants: dict[str, Value] | None = None) -> x.Kernel:
    """The expanded kernel of a text with one kernel."""
    file = parse(text, "test.cake")
    kernel, diagnostics = expand_kernel(file, file.kernels[-1], constants)
    assert kernel is not None, diagnostics
    return kernel


def flat(body: tuple[x.Stmt, ...]) -> list[x.Stmt]:
    """Every statement of a program, blocks included."""
    out: list[x.Stmt] = []
    for node in body:
        out.append(node)
        if isinstance(node, x.For):
            out.extend(flat(node.body))
        elif isinstance(node, x.If):
            out.extend(flat(node.then))
            out.extend(flat(node.orelse))
    return out


def role(kernel: x.Kernel, name: str) -> x.Role:
    """A role of a kernel by name."""
    return next(r for r in kernel.roles if r.name == name)
