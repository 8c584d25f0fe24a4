"""What can be said without a run: whether a kernel is in the fragment that the theorems speak of.

F-a (U901): control depends on launch values, coordinates, loop indices and read-only inputs only. F-b (U903): guards on
loop indices compare with constants, with distances from the loop's end, or test a residue. F-d (U905): CTAs wait for each
other through global memory only on behalf of tiles (``cake.verify.grid``).
"""

from __future__ import annotations

from cake.diagnostics import Diagnostic
from cake.ir import expanded as x
from cake.ir.expr import Apply, Const, Expr, Sym
from cake.verify.control import TAINT, Site, leaves, linear, plus, sites

COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}


def outside(kernel: x.Kernel) -> list[Diagnostic]:
    """Why the theorems do not speak of ``kernel``, as unknowns."""
    found: dict[str, Diagnostic] = {}
    for site in sites(kernel):
        for d in _of(site):
            found.setdefault(f"{d.code} {d.span}", d)
    return list(found.values())


def _of(site: Site) -> list[Diagnostic]:
    node = site.node
    result = []
    if isinstance(node, x.Op) and node.op == "wait_until" and not any(loop.tiles for loop in site.loops):
        result.append(
            _unknown(
                "U905",
                f"a CTA waits for another one through `{node.ref('flag').base}`, on behalf of no tile",
                node,
                "wait inside the walk over tiles: the order of the list is what progress is judged by",
            )
        )
    for e in site.exprs:
        tainted = sorted(name for name in leaves(e) if name.startswith(TAINT))
        if tainted:
            what = {"for": "a loop's bounds depend", "if": "a condition depends"}.get(node.kind, "a flag depends")
            result.append(
                _unknown(
                    "U901",
                    f"{what} on {tainted[0][len(TAINT) :]}, which the kernel may write",
                    node,
                    "decide control by launch values or by inputs that nothing writes",
                )
            )
        if isinstance(node, x.If) and not tainted:
            for odd in _guards(e, site):
                result.append(
                    _unknown(
                        "U903",
                        "a condition on a loop index is none of `k == c`, `k < c`, `k >= n - c`, `k % m == r`",
                        node,
                        "split the loop, or test the index against a constant or the distance from the loop's end",
                        f"the condition: {_show(odd)}",
                    )
                )
    return result


def _guards(e: Expr, site: Site) -> list[Expr]:
    """Atoms on loop indices that have another form."""
    if isinstance(e, Apply) and e.op in ("and", "or", "not"):
        return [odd for a in e.args for odd in _guards(a, site)]
    indices = {loop.var for loop in site.loops if not loop.tiles and not loop.constant}
    if not leaves(e) & indices:
        return []
    if not (isinstance(e, Apply) and e.op in COMPARISONS):
        return [e]
    form = plus(linear(e.args[0]), linear(e.args[1]), -1)
    for term in form:
        if term is None or not leaves(term) & indices or isinstance(term, Sym):
            continue
        residue = isinstance(term, Apply) and term.op == "%" and isinstance(term.args[1], Const)
        if not (residue and isinstance(term, Apply) and isinstance(term.args[0], Sym)):
            return [e]
    return []


def _show(e: Expr) -> str:
    from cake.facts.show import show

    return show(e)


def _unknown(code: str, message: str, node: x.Stmt, help: str, *facts: str) -> Diagnostic:
    return Diagnostic(code=code, severity="error", message=message, span=node.span, facts=facts, help=help)
