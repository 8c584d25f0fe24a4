"""From a surface kernel, one choice of constants and a target to the expanded kernel."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from cake.diagnostics import CakeError, Diagnostic, Findings, Label
from cake.expand import clusters, dynamic, lanes
from cake.expand import declarations as d
from cake.expand.constants import Value, bind_constants
from cake.expand.context import Abort, KernelContext, RoleContext
from cake.expand.functions import load_rules
from cake.expand.prune import prune, used_cursors, used_tiles
from cake.expand.resources import (
    budgets_differ,
    check_named,
    check_shared,
    layout_barriers,
    layout_buffers,
    registers,
    threads,
)
from cake.expand.statements import instance_symbol, run_block
from cake.expand.values import Scalar
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.expr import Apply, Expr, Sym, integer
from cake.ir.targets import REFUSED, TARGETS, Target

SINGLE_THREAD = ("tma", "range", "unroll", "cdiv", "min", "max", "load", "where", "fill", "wait", "release", "skip")
"""What a role may contain and still be run by one elected thread alone."""


def pick_target(kernel: s.Kernel, name: str | None, findings: Findings) -> Target:
    """The target to expand for: the one asked for, else the first the kernel names. Never another one silently (T021)."""
    chosen = name or (kernel.targets[0] if kernel.targets else "")
    for t in kernel.targets:
        if t in REFUSED:
            findings.error("T021", f"target {t} is refused: {REFUSED[t]}", kernel.span)
        elif t not in TARGETS:
            near = difflib.get_close_matches(t, list(TARGETS), n=1)
            findings.error(
                "T021",
                f"there is no target `{t}`",
                kernel.span,
                help=f"did you mean `{near[0]}`?" if near else f"targets: {', '.join(TARGETS)}",
            )
    findings.raise_errors()
    if chosen not in kernel.targets:
        findings.error(
            "T021",
            f"kernel `{kernel.name}` is not written for {chosen}",
            kernel.span,
            help=f"it is for {', '.join(kernel.targets)}",
        )
        findings.raise_errors()
    return TARGETS[chosen]


def expand_kernel(
    file: s.File,
    kernel: s.Kernel,
    constants: Mapping[str, Value] | None = None,
    target: str | None = None,
) -> tuple[x.Kernel | None, list[Diagnostic]]:
    """Check and expand one kernel. Returns None with the findings if one of them blocks."""
    load_rules()
    findings = Findings()
    try:
        ctx = KernelContext(file, kernel, pick_target(kernel, target, findings), findings)
        result = _expand(ctx, constants or {})
    except Abort:
        return None, findings.items
    except CakeError as error:
        for diagnostic in error.diagnostics:
            findings.add(diagnostic)
        return None, findings.items
    return (None if findings.errors else result), findings.items


class Expansions:
    """The expansions of a file's kernels, each made once: a kernel is checked by itself and in every step that calls it."""

    def __init__(self, file: s.File) -> None:
        self.file = file
        self.known: dict[tuple[int, str | None, str], tuple[x.Kernel | None, list[Diagnostic]]] = {}

    def of(
        self, kernel: s.Kernel, constants: Mapping[str, Value] | None = None, target: str | None = None
    ) -> tuple[x.Kernel | None, list[Diagnostic]]:
        """What ``expand_kernel`` says of a kernel of the file."""
        chosen = target or (kernel.targets[0] if kernel.targets else None)
        key = id(kernel), chosen, repr(sorted((constants or {}).items()))
        if key not in self.known:
            self.known[key] = expand_kernel(self.file, kernel, constants, chosen)
        return self.known[key]


def _expand(ctx: KernelContext, constants: Mapping[str, Value]) -> x.Kernel:
    bind_constants(ctx, constants)
    d.bind_params(ctx)
    d.bind_conditions(ctx)
    d.bind_definitions(ctx)
    d.bind_tiles(ctx)
    d.bind_roles(ctx)
    d.bind_pipelines(ctx)
    d.bind_buffers(ctx)
    d.bind_turns(ctx)
    dynamic.bind(ctx)
    order_by_use(ctx)
    count = threads(ctx)
    launch = registers(ctx, count)
    scan_fills(ctx)
    roles = [expand_role(ctx, do, launch) for do in order_of_bodies(ctx)]
    roles.sort(key=lambda r: r.first_warp)
    check_endpoints(ctx)
    check_contractions(ctx)
    buffers, end = layout_buffers(ctx)
    barriers, rings, end = layout_barriers(ctx, end)
    check_shared(ctx, buffers, end)
    named = clusters.named(ctx, check_named(ctx, count))
    tiles = ctx.tiles
    assert tiles is not None
    roles = clusters.finish(ctx, roles)
    roles = [lanes.ordered(r, frozenset(b.name for b in buffers)) for r in roles]
    grid: Expr = tiles.positions
    if tiles.schedule == "persistent":
        resident: Expr = Apply(op="*", args=(Sym(name="%sms"), Sym(name="%resident")), dtype="i32")
        if tiles.cluster > 1:
            resident = Sym(name="%clusters")
        grid = Apply(op="min", args=(tiles.positions, resident), dtype="i32")
    return x.Kernel(
        name=ctx.kernel.name,
        target=ctx.target.name,
        constants=dict(ctx.constants),
        tensors=tuple(ctx.tensors),
        scalars=tuple(ctx.scalars),
        dims=tuple(ctx.dims.values()),
        guards=tuple(ctx.guards),
        assumes=tuple(ctx.assumes),
        schedule=tiles.schedule,  # type: ignore[arg-type]
        positions=_inline(ctx, tiles.positions),
        grid=_inline(ctx, grid),
        cluster=tiles.cluster,
        threads=count,
        launch_registers=launch,
        shared_bytes=end,
        buffers=tuple(buffers),
        barriers=tuple(barriers),
        named=tuple(named) if barriers or len(named) > 1 else (),
        rings=tuple(rings),
        maps=tuple(ctx.maps.values()),
        entry=clusters.entry(ctx, entry(barriers)),
        roles=tuple(roles),
        span=ctx.kernel.span,
    )


def _inline(ctx: KernelContext, e: Expr) -> Expr:
    """Replace kernel-level definitions by their values: the host knows only dims and scalars."""
    from cake.ir.expr import substitute

    for name, value, _ in reversed(ctx.definitions):
        e = substitute(e, {name: value})
    return e


def entry(barriers: list[x.Barrier]) -> tuple[x.Stmt, ...]:
    """Barriers are initialised by one thread, published, and only then used."""
    if not barriers:
        return ()
    return (
        *(x.Init(executor="one", barrier=b.name, reason="prologue", span=b.span) for b in barriers),
        x.Fence(executor="one", what="mbarrier_init", reason="prologue"),
        x.Named(barrier="cta", reason="prologue"),
    )


# ---- roles ----------------------------------------------------------------------------------------------------------


def order_of_bodies(ctx: KernelContext) -> list[s.Do]:
    """One body a role (T018), in the order of the roles."""
    bodies: dict[str, s.Do] = {}
    for do in ctx.kernel.dos:
        if do.role not in ctx.roles:
            near = difflib.get_close_matches(do.role, list(ctx.roles), n=1)
            ctx.error(
                "T001", f"there is no role `{do.role}`", do.span, help=f"did you mean `{near[0]}`?" if near else None
            )
        elif do.role in bodies:
            ctx.error(
                "T002",
                f"role `{do.role}` has two bodies",
                do.span,
                labels=(Label(span=bodies[do.role].span, text="the first"),),
            )
        else:
            bodies[do.role] = do
    for name, role in ctx.roles.items():
        if name not in bodies:
            ctx.error("T018", f"role `{name}` has no `do` block", role.span, help=f"add `do {name}:`")
    return [bodies[name] for name in ctx.roles if name in bodies]


def order_by_use(ctx: KernelContext) -> None:
    """Pipelines, buffers and turns in the order in which the roles first mention them, so that the order of their
    declarations and of the bodies does not reach the machine code. Aliases come last, after what they share room with."""
    first: dict[str, int] = {}
    bodies = [do for role in ctx.roles for do in ctx.kernel.dos if do.role == role]
    for at, node in enumerate(node for do in bodies for node in s.walk(do)):
        if isinstance(node, s.Name):
            first.setdefault(node.name, at)
        elif isinstance(node, s.Attribute):
            first.setdefault(f".{node.name}", at)
    never = sum(1 for do in bodies for _ in s.walk(do))

    def use(name: str) -> tuple[int, int]:
        owner, _, part = name.partition(".")
        return first.get(owner, never), first.get(f".{part}", never) if part else 0

    aliases = [name for name, b in ctx.buffers.items() if b.alias is not None]
    roots = sorted((name for name in ctx.buffers if name not in aliases), key=use)
    ctx.buffers = {name: ctx.buffers[name] for name in (*roots, *aliases)}
    ctx.rings = {name: ctx.rings[name] for name in sorted(ctx.rings, key=use)}
    ctx.turns = {name: ctx.turns[name] for name in sorted(ctx.turns, key=use)}


def is_solo(ctx: KernelContext, role: str) -> bool:
    """True if the role has only single-thread operations, so that one elected thread runs its whole program. One that signals peers
    of its cluster meets them at the end with whole warps (``barrier.cluster`` with ``.aligned``), so it is not."""
    for ring in ctx.rings.values():
        if (ring.multicast and role in ring.consumers) or (ring.across and role in ring.producers + ring.consumers):
            return False
    for do in ctx.kernel.dos:
        if do.role != role:
            continue
        for node in s.walk(do):
            if isinstance(node, s.Declare):
                return False
            if isinstance(node, s.Call) and _callee(node.func) not in SINGLE_THREAD:
                return False
            if isinstance(node, s.With) and not isinstance(node.expr, s.Call):
                return False
        return any(isinstance(n, s.Call) and _callee(n.func) in ("tma", "fill") for n in s.walk(do))
    return False


def _callee(e: s.Expr) -> str:
    if isinstance(e, s.Name):
        return e.name
    if isinstance(e, s.Attribute):
        if e.name in ("fill", "wait", "release", "skip"):
            return e.name
        base = e.base
        while isinstance(base, s.Attribute):
            base = base.base
        return base.name if isinstance(base, s.Name) else ""
    return ""


def scan_fills(ctx: KernelContext) -> None:
    """Which operations fill each pipeline, by role, from the text: fills derive their completion from it, releases their fence."""
    for do in ctx.kernel.dos:
        for node in s.walk(do):
            if not isinstance(node, s.With) or not isinstance(node.expr, s.Call):
                continue
            func = node.expr.func
            if not (isinstance(func, s.Attribute) and func.name == "fill" and isinstance(func.base, s.Name)):
                continue
            ring = ctx.rings.get(func.base.name)
            if ring is None:
                continue
            kinds = ring.mechanisms.setdefault(do.role, set())
            for inner in s.walk(node):
                if isinstance(inner, s.Call):
                    f = inner.func
                    if isinstance(f, s.Attribute) and isinstance(f.base, s.Name) and f.base.name == "tma":
                        kinds.add(f"tma.{f.name}")
                        ring.multicast |= clusters.receivers(ctx, ring, inner)
                    elif isinstance(f, s.Name) and f.name in ("store", "stmatrix", "cp_async"):
                        kinds.add(f.name)


def expand_role(ctx: KernelContext, do: s.Do, launch: int | None) -> x.Role:
    """The program of one role."""
    info = ctx.roles[do.role]
    role = RoleContext(ctx, info, do.var)
    role.solo = is_solo(ctx, do.role)
    if do.var is not None:
        if do.var in ctx.env:
            ctx.error("T002", f"`{do.var}` is already declared", do.span, help="use another name")
        role.env[do.var] = Scalar(Sym(name=do.var))
    symbol = instance_symbol(role)
    role.facts.declare(symbol, 0, info.instances)
    if info.registers is not None and launch is not None and info.registers != launch and budgets_differ(ctx):
        form = "inc" if info.registers > launch else "dec"
        role.emit(x.SetMaxNReg(form=form, count=info.registers, reason="registers", span=info.span))  # type: ignore[arg-type]
    for name, value, span in ctx.definitions:
        role.emit(x.Let(name=name, dtype=value.dtype, value=value, reason="define", span=span))
    _first_pass_of_turns(role, symbol)
    run_block(role, do.body)
    if role.bulk:
        role.emit(
            x.GroupWait(
                executor="one",
                queue="bulk",
                keep=0,
                read=True,
                reason="drain: shared memory outlives its last store",
                span=do.span,
            )
        )
    for ring in ctx.rings.values():
        ring.generic |= role.generic & set(ring.fields.values())
    role.emit(x.Exit(reason="end of the role", span=do.span))
    body = prune(tuple(role.out))
    tiles = used_tiles(body)
    cursors = used_cursors(body)
    needs_index = info.instances > 1 or do.var is not None
    return x.Role(
        name=info.name,
        first_warp=info.first_warp,
        warps=info.warps,
        instances=info.instances,
        solo=role.solo,
        var=symbol if needs_index else None,
        registers=info.registers,
        tiles={n: t for n, t in role.tiles.items() if n in tiles},
        cursors={n: c for n, c in role.cursors.items() if n in cursors},
        body=body,
        span=do.span,
    )


def _first_pass_of_turns(role: RoleContext, symbol: str) -> None:
    """The last instance passes each turn to the first before anyone has taken it."""
    n = role.role.instances
    for turn, owner in role.kernel.turns.items():
        if owner != role.role.name or n == 1:
            continue
        span = role.kernel.spans.get(turn)
        barrier = role.kernel.named_barrier(turn, 2 * role.threads, n, False, span)
        last = Apply(op="==", args=(Sym(name=symbol), integer(n - 1)), dtype="bool")
        role.emit(
            x.If(
                cond=last,
                then=(
                    x.Named(
                        barrier=barrier, index=integer(0), form="arrive", reason="the turn's first pass", span=span
                    ),
                ),
                reason="the turn's first pass",
                span=span,
            )
        )


# ---- checks over the whole kernel -----------------------------------------------------------------------------------


def check_endpoints(ctx: KernelContext) -> None:
    """Every producer fills and every consumer waits: otherwise the other side waits for ever (P108)."""
    for ring in ctx.rings.values():
        if ring.derived:
            continue
        for role in ring.producers:
            if role in ctx.roles and role not in ring.mechanisms:
                ctx.error(
                    "P108",
                    f"role `{role}` never fills pipeline `{ring.name}`",
                    ring.span,
                    help=f"fill it with `with {ring.name}.fill() as s:`",
                )
        if ring.store:
            continue
        for role in ring.consumers:
            if not _calls(ctx, role, ring.name, "wait"):
                ctx.error(
                    "P108",
                    f"role `{role}` never waits on pipeline `{ring.name}`, so its stages are never given back",
                    ring.span,
                    help=f"take stages with `s = {ring.name}.wait()` and release them",
                )


def _calls(ctx: KernelContext, role: str, ring: str, method: str) -> bool:
    for do in ctx.kernel.dos:
        if do.role != role:
            continue
        for node in s.walk(do):
            if (
                isinstance(node, s.Attribute)
                and node.name == method
                and isinstance(node.base, s.Name)
                and node.base.name == ring
            ):
                return True
    return False


def check_contractions(ctx: KernelContext) -> None:
    """Contracted axes come from the same dim, where both are known (T012): catches a missing `.T` on square tiles."""
    for span, a, b in ctx.contractions:
        left, right = ctx.axis_dims.get(a), ctx.axis_dims.get(b)
        if left is None or right is None or left[0] == right[0]:
            continue
        ctx.error(
            "T012",
            f"the contracted axes come from different dims, `{left[0]}` and `{right[0]}`",
            span,
            labels=(
                Label(span=left[1], text=f"filled along {left[0]} here"),
                Label(span=right[1], text=f"filled along {right[0]} here"),
            ),
            help="b is [K, N]: a row-major [N, K] tile is written with `.T`",
        )
