"""Kernels around wgmma whose fate only ptxas decides: do its groups stay asynchronous?

The frame loads q, k and v once and loops over products on them; the body of the loop is what a probe is about.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from cake.codegen import emit, nvrtc
from cake.compiler import expand_text
from cake.ir import expanded as x
from cake.ir.expr import Apply, Sym, integer

FRAME = """
kernel probe(q: bf16[64, 128], k: bf16[128, 128], v: bf16[128, 128], h: f32[128], n: i32, scale: f32, c: i32,
             out y: f32[64, 128], out z: f32[64, 128]) for sm_90a:
    where n >= 2
    tiles once:
        i in 1
    role load: warps 4
    role work: warps 4
    pipeline r[1] load -> work:
        q: bf16[64, 128] swizzle(128)
        k: bf16[128, 128] swizzle(128)
        v: bf16[128, 128] swizzle(128)
    do load:
        for t in tiles:
            with r.fill() as st:
                tma.load(st.q, q[0 : 64, :])
                tma.load(st.k, k[0 : 128, :])
                tma.load(st.v, v[0 : 128, :])
    do work:
        s: f32[64, 128] frag
        p: bf16[64, 128] frag
        o: f32[64, 128] frag
        top: f32[64, 1] frag
        for t in tiles:
            o = 0.0
            s = 0.0
            top = 0.0
            p = bf16(s)
            st = r.wait()
{body}
            r.release()
            store(y[rows(o), cols(o)], o)
            store(z[rows(top), 0], top)
"""

REMARK = re.compile(r"\((C75\d\d)\)")


@dataclass(frozen=True)
class Probe:
    """A loop body. ``guards``: the accumulators whose products are guarded at run time, which Cake refuses (W713).
    ``serialised``: ptxas remarks on it (on what a refused one would have been)."""

    name: str
    body: str
    guards: tuple[str, ...] = ()
    serialised: frozenset[str] = frozenset()

    @property
    def source(self) -> str:
        """The whole kernel."""
        return FRAME.format(body=textwrap.indent(textwrap.dedent(self.body).strip("\n"), " " * 12))


SKEWED = """
for i in range(n + 1){split}:
    if {first}:
        wgmma(s, st.q, st.k.T, use_acc=False)
    if {second}:
        wgmma(o, p, st.v)
    if {first}:
        wgmma.wait(s)
        {mask}
        top = max(top, max(s, axis=1))
        s = exp2(s * scale - top * scale)
    if {second}:
        wgmma.wait(o)
        o = o * 0.5
    p = bf16(s)
"""


def skewed(first: str = "i < n", second: str = "i > 0", split: str = "", mask: str = "s = s + 0.0") -> str:
    """Issue S of one step and O of the step before, then work on S under O: the attention loop."""
    return SKEWED.format(first=first, second=second, split=split, mask=mask)


BRANCHES = frozenset({"C7513", "C7517"})
LOOP = frozenset({"C7514"})
INITIALISED = frozenset({"C7517"})

PROBES = [
    Probe("guards on both groups", skewed(), ("s", "o"), BRANCHES),
    Probe("guard on the second group", skewed(first="n > 0"), ("o",), BRANCHES),
    Probe("guard on the first group", skewed(second="n > 1"), ("s",), LOOP),
    Probe("split in pieces", skewed(split=" split(1, n)")),
    Probe(
        "split, and a mask decided at run time",
        skewed(split=" split(1, n)", mask="if i < c:\n            s = where(cols(s) < c, s, -1e30)"),
    ),
    Probe("decided guards", skewed(first="n > 0", second="n > 1")),
    Probe(
        "accumulator preload",
        """
        for i in range(n):
            s = load(h[cols(s)])
            wgmma(s, st.q, st.k.T)
            wgmma.wait(s)
            top = max(top, max(s, axis=1))
        """,
    ),
    Probe(
        "register A",
        """
        for i in range(n):
            wgmma(o, p, st.v)
            wgmma.wait(o)
            p = bf16(o * 0.5)
        """,
    ),
    Probe(
        "two accumulators in flight",
        """
        for i in range(n):
            wgmma(s, st.q, st.k.T, use_acc=False)
            wgmma(o, st.q, st.v)
            wgmma.wait(s)
            top = max(top, max(s, axis=1))
            wgmma.wait(o)
        """,
    ),
    Probe(
        "one group in flight over the back edge",
        """
        for i in range(n):
            wgmma(o, st.q, st.k.T)
            wgmma.wait(keep=1)
        wgmma.wait(o)
        """,
    ),
    Probe(
        "a guard that is entered and left with nothing in flight",
        """
        for i in range(n):
            if i < c:
                wgmma(o, st.q, st.k.T)
                wgmma.wait(o)
            else:
                wgmma(o, st.q, st.v)
                wgmma.wait(o)
        """,
    ),
    Probe(
        "an accumulator given a value while another is in flight",
        """
        for i in range(n):
            wgmma(o, st.q, st.k.T)
            s = load(h[cols(s)])
            wgmma(s, st.q, st.v)
            wgmma.wait(s)
            top = max(top, max(s, axis=1))
        """,
        serialised=INITIALISED,
    ),
    Probe(
        "an accumulator read while its successor is in flight",
        """
        wgmma(s, st.q, st.k.T, use_acc=False)
        for i in range(n):
            wgmma(o, st.q, st.v, use_acc=False)
            wgmma.wait(s)
            top = max(top, max(s, axis=1))
            wgmma(s, st.q, st.k.T, use_acc=False)
            wgmma.wait(o)
            top = max(top, max(o, axis=1))
        wgmma.wait(s)
        """,
        serialised=LOOP,
    ),
]


CONDITIONS = {
    "s": Apply(op="<", args=(Sym(name="i"), Sym(name="n")), dtype="bool"),
    "o": Apply(op=">", args=(Sym(name="i"), integer(0)), dtype="bool"),
}


def guarded(kernel: x.Kernel, names: tuple[str, ...]) -> x.Kernel:
    """The kernel with run-time conditions around the products and waits of some accumulators inside loops: what Rule S
    refuses to make."""

    def body(statements: tuple[x.Stmt, ...]) -> tuple[x.Stmt, ...]:
        out: list[x.Stmt] = []
        group: list[x.Stmt] = []
        for node in statements:
            if isinstance(node, x.Fence | x.Commit) or (isinstance(node, x.Op) and node.op == "wgmma"):
                group.append(node)
                if isinstance(node, x.Commit):
                    written = next(g.reg("d").name for g in group if isinstance(g, x.Op))
                    out += [x.If(cond=CONDITIONS[written], then=tuple(group))] if written in names else group
                    group = []
            elif isinstance(node, x.GroupWait) and node.ready and node.ready[0] in names:
                out.append(x.If(cond=CONDITIONS[node.ready[0]], then=(node,)))
            else:
                out.append(node)
        return (*out, *group)

    def walk(node: x.Stmt, inside: bool) -> x.Stmt:
        if not isinstance(node, x.For):
            return node
        within = tuple(walk(child, node.var == "i") for child in node.body)
        return node.model_copy(update={"body": body(within) if node.var == "i" else within})

    roles = tuple(r.model_copy(update={"body": tuple(walk(n, False) for n in r.body)}) for r in kernel.roles)
    return kernel.model_copy(update={"roles": roles})


def kernel(probe: Probe) -> x.Kernel:
    """The expanded kernel; of a refused probe, what it would have been."""
    if not probe.guards:
        return expand_text(probe.source, "probe.cake")
    plain = Probe("", skewed(first="n > 0", second="n > 1"))
    return guarded(expand_text(plain.source, "probe.cake"), probe.guards)


def remarks(probe: Probe) -> set[str]:
    """The codes of ptxas's remarks."""
    k = kernel(probe)
    options = () if k.launch_registers is None else (f"--maxrregcount={k.launch_registers}",)
    compiled = nvrtc.compile_source(emit(k), "sm_90a", name="probe.cu", options=options, allow={"W713", "G007", "G008"})
    return set(REMARK.findall(compiled.log))
