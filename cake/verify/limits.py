"""Limits of the hardware on an expanded kernel (W701, W702, W705 to W708, W710, C605): rules over declarations, before any run.

Expansion keeps them all; a kernel written or changed by hand as JSON may not. Sources: the target table
(``cake.ir.targets``), PTX ISA 9.0: 5.5.7 (swizzling modes: the pattern repeats every 8 rows of the swizzle's width, by bits of
the absolute address), 9.7.9.27.5.2 and the CUDA driver API's cuTensorMapEncodeTiled (boxes), 9.7.13.15.1 (range of an
mbarrier's counts), 9.7.20.5 (setmaxnreg).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cake.diagnostics import Diagnostic, Span
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.ir.ops import OPS
from cake.ir.targets import TARGETS, Target
from cake.machine.program import statements

ATOM_ROWS = 8
"""Rows of a swizzle's pattern."""

BOX_MOST = 256
"""Elements of a box along an axis."""

COUNT_MOST = (1 << 20) - 1
"""Pending arrivals and bytes of an mbarrier."""


def limits(kernel: x.Kernel) -> list[Diagnostic]:
    """What the target does not offer, or the hardware does not do."""
    target = TARGETS.get(kernel.target)
    found: list[Diagnostic] = []
    for rule in RULES:
        found += rule(kernel, target)
    return found


def _shared(kernel: x.Kernel, target: Target | None) -> Iterator[Diagnostic]:
    if target is not None and kernel.shared_bytes > target.shared_bytes:
        yield _error(
            "W701",
            f"the kernel asks for {kernel.shared_bytes} bytes of shared memory, {target.name} has {target.shared_bytes} for a CTA",
            kernel.span,
            "fewer stages, or smaller tiles",
        )


def _threads(kernel: x.Kernel, target: Target | None) -> Iterator[Diagnostic]:
    if target is None:
        return
    if kernel.threads > target.threads_per_cta:
        message = f"{kernel.threads} threads are more than a CTA's {target.threads_per_cta}"
        yield _error("W706", message, kernel.span, "fewer warps or instances")
    if kernel.cluster > target.cluster_size:
        message = f"a cluster of {kernel.cluster} CTAs is more than the {target.cluster_size} of {target.name}"
        yield _error("W706", message, kernel.span, "smaller clusters")


def _named(kernel: x.Kernel, target: Target | None) -> Iterator[Diagnostic]:
    most = target.named_barriers if target is not None else 16
    for barrier in kernel.named:
        last = barrier.id + barrier.size - 1
        if barrier.id < 0 or last >= most:
            message = f"barrier `{barrier.name}` uses ids {barrier.id} to {last}; a CTA has 0 to {most - 1}"
            yield _error("W705", message, barrier.span, "fewer turns, instances or roles that sync")


def _pool(kernel: x.Kernel, target: Target | None) -> Iterator[Diagnostic]:
    """Registers that roles ask for by setmaxnreg, against those that the launch allocates."""
    launch = kernel.launch_registers
    if launch is None:
        return
    need, parts, span = 0, [], None
    for role in kernel.roles:
        changes = [n for n in statements(role.body) if isinstance(n, x.SetMaxNReg)]
        each = changes[-1].count if changes else launch
        threads = 32 * role.warps * role.instances
        need += each * threads
        parts.append(f"{role.name}: {each} x {threads} threads")
        if changes and changes[-1].form == "inc":
            span = changes[-1].span or role.span
    used = sum(32 * r.warps * r.instances for r in kernel.roles)
    if need > launch * used:
        yield _error(
            "W702",
            f"the roles ask for {need:,} registers, and the launch gives them {launch} x {used} = {launch * used:,}",
            span,
            "lower a budget; an increase past the pool waits for ever",
            *parts,
        )


def _boxes(kernel: x.Kernel, target: Target | None) -> Iterator[Diagnostic]:
    for m in kernel.maps:
        tensor = kernel.tensor(m.tensor)
        if tensor is None:
            continue
        inner = m.box[-1] * DTYPES[tensor.dtype].bytes
        span = tensor.span
        if any(not 1 <= n <= BOX_MOST for n in m.box):
            yield _error(
                "W707",
                f"the box {list(m.box)} of `{m.name}` has an axis outside 1 to {BOX_MOST}",
                span,
                "smaller boxes",
            )
        if inner % 16:
            message = f"the rows of the box {list(m.box)} of `{m.name}` have {inner} bytes, which are no multiple of 16"
            yield _error("W707", message, span, "wider boxes")
        if m.swizzle and inner > m.swizzle:
            message = f"the rows of the box {list(m.box)} of `{m.name}` have {inner} bytes, more than its swizzle of {m.swizzle}"
            yield _error("W708", message, span, "one box for each panel of the swizzle's width")


def _swizzles(kernel: x.Kernel, target: Target | None) -> Iterator[Diagnostic]:
    """Swizzles permute by absolute addresses: every tile starts where the pattern does."""
    for b in kernel.buffers:
        atom = ATOM_ROWS * b.swizzle
        if not atom:
            continue
        starts = [b.offset, *([b.slot_bytes] if b.slots > 1 else []), *([b.instance_bytes] if b.instances > 1 else [])]
        if any(s % atom for s in starts):
            yield _error(
                "W708",
                f"`{b.name}` is swizzled by {b.swizzle} bytes and has a tile that does not start at a multiple of {atom} bytes",
                b.span,
                "align the buffer, its slots and its instances to the pattern",
                f"offset {b.offset}, slots {b.slot_bytes} apart, instances {b.instance_bytes} apart",
            )


def _counts(kernel: x.Kernel, target: Target | None) -> Iterator[Diagnostic]:
    for m in kernel.barriers:
        if not 1 <= m.count <= COUNT_MOST:
            message = f"mbarrier `{m.name}` counts {m.count} arrivals; the hardware counts 1 to {COUNT_MOST}"
            yield _error("W710", message, m.span, "fewer arrivals")


def _warpgroups(kernel: x.Kernel, target: Target | None) -> Iterator[Diagnostic]:
    """Instructions of a warpgroup are executed by four warps, of which the first is a multiple of four (9.7.15.1)."""
    for role in kernel.roles:
        wide = [n for n in statements(role.body) if isinstance(n, x.Op) and OPS[n.op].width == "warpgroup"]
        if wide and (role.first_warp % 4 or role.warps % 4):
            message = f"role `{role.name}` begins at warp {role.first_warp} with {role.warps} warps an instance, and `{wide[0].op}` "
            yield _error(
                "C605",
                message + "is executed by a whole warpgroup",
                wide[0].span or role.span,
                "warps 4, from a multiple of 4 on",
            )


Rule = Callable[[x.Kernel, Target | None], Iterator[Diagnostic]]
RULES: tuple[Rule, ...] = (_shared, _threads, _named, _pool, _boxes, _swizzles, _counts, _warpgroups)


def _error(code: str, message: str, span: Span | None, help: str, *facts: str) -> Diagnostic:
    return Diagnostic(code=code, severity="error", message=message, span=span, facts=facts, help=help)
