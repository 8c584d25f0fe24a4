"""What a kernel takes of the hardware: shared memory offsets, warps, registers, barrier ids, and the limits they must keep."""

from __future__ import annotations

from cake.expand import clusters
from cake.expand.context import BufferInfo, KernelContext
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES

SWIZZLE_ALIGNMENT = {0: 128, 32: 256, 64: 512, 128: 1024}
"""Alignment of a tile in shared memory, bytes: the swizzle takes its phase from absolute address bits (PTX ISA, "Swizzling modes");
128 is what a bulk tensor copy needs of an unswizzled destination."""

BARRIER_BYTES = 8


def tile_bytes(b: BufferInfo) -> int:
    """Bytes of one tile, padding of its rows included."""
    rows = 1
    for n in b.shape[:-1]:
        rows *= n
    return rows * (b.shape[-1] + b.pad) * DTYPES[b.dtype].bytes


def _round(n: int, to: int) -> int:
    return -(-n // to) * to


def layout_buffers(ctx: KernelContext) -> tuple[list[x.Buffer], int]:
    """Offsets by alignment, then size, then first use, so that permuting declarations changes nothing. An aliased buffer starts
    where the other one does; both share the room of the larger and the stricter alignment. Returns the buffers in the order of
    their use and the end of the last."""
    infos = list(ctx.buffers.values())
    placed: dict[str, x.Buffer] = {}
    end = 0

    def place(b: BufferInfo, offset: int) -> x.Buffer:
        slot = _round(tile_bytes(b), SWIZZLE_ALIGNMENT[b.swizzle])
        return x.Buffer(
            name=b.name,
            dtype=b.dtype,
            shape=b.shape,
            swizzle=b.swizzle,  # type: ignore[arg-type]
            pad=b.pad,
            slots=b.slots,
            instances=b.instances,
            offset=offset,
            slot_bytes=slot,
            instance_bytes=slot * b.slots if b.instances > 1 else 0,
            alias=b.alias,
            span=b.span,
        )

    roots = [b for b in infos if b.alias is None]
    room = {b.name: (SWIZZLE_ALIGNMENT[b.swizzle], _total(b)) for b in roots}
    host = {b.name: b.name for b in roots}
    for b in infos:
        if b.alias is not None:
            host[b.name] = root = host[b.alias]
            room[root] = (max(room[root][0], SWIZZLE_ALIGNMENT[b.swizzle]), max(room[root][1], _total(b)))
    order = sorted(range(len(roots)), key=lambda i: (-room[roots[i].name][0], -room[roots[i].name][1], i))
    for i in order:
        b = roots[i]
        alignment, size = room[b.name]
        offset = _round(end, alignment)
        placed[b.name] = place(b, offset)
        end = offset + size
    for b in infos:
        if b.alias is not None:
            placed[b.name] = place(b, placed[host[b.name]].offset)
    return [placed[b.name] for b in infos], end


def _total(b: BufferInfo) -> int:
    return _round(tile_bytes(b), SWIZZLE_ALIGNMENT[b.swizzle]) * b.slots * b.instances


def layout_barriers(ctx: KernelContext, start: int) -> tuple[list[x.Barrier], list[x.Ring], int]:
    """The mbarriers of each pipeline after the buffers, with their counts."""
    at = _round(start, BARRIER_BYTES)
    barriers: list[x.Barrier] = []
    rings: list[x.Ring] = []
    for r in ctx.rings.values():
        fields = tuple(r.fields.values())
        if r.store:
            rings.append(x.Ring(name=r.name, slots=r.stages, kind="store", fields=fields, span=r.span))
            continue
        full, empty = f"{r.name}.full", f"{r.name}.empty"
        filled = sum(r.arrivals.get(p, 0) for p in r.producers)
        released = sum(_release_arrivals(ctx, c) // (ctx.roles[c].instances if r.one else 1) for c in r.consumers)
        filled *= len(clusters.readers(ctx, r) or (0,))
        released *= len(clusters.writers(ctx, r) or (0,))
        for name, count in ((full, filled), (empty, released)):
            barriers.append(x.Barrier(name=name, count=max(count, 1), slots=r.stages, offset=at, span=r.span))
            at += BARRIER_BYTES * r.stages
        rings.append(
            x.Ring(name=r.name, slots=r.stages, kind="mbarrier", fields=fields, full=full, empty=empty, span=r.span)
        )
    return barriers, rings, at


def _release_arrivals(ctx: KernelContext, role: str) -> int:
    from cake.expand.kernel import is_solo

    info = ctx.roles[role]
    return info.instances if is_solo(ctx, role) else info.warps * info.instances


def check_shared(ctx: KernelContext, buffers: list[x.Buffer], total: int) -> None:
    """W701: shared memory of a CTA."""
    limit = ctx.target.shared_bytes
    if total <= limit:
        return
    sizes = sorted(((b.slot_bytes * b.slots * b.instances, b.name) for b in buffers if b.alias is None), reverse=True)
    ctx.error(
        "W701",
        f"the kernel needs {total:,} bytes of shared memory and {ctx.target.name} offers {limit:,}",
        ctx.kernel.span,
        facts=tuple(f"{name}: {size:,} bytes" for size, name in sizes[:6]),
        help="fewer stages, or smaller tiles",
    )


def threads(ctx: KernelContext) -> int:
    """Threads of a CTA; W706 over the limit. A gap before an aligned role is filled by idle warps."""
    last = max(ctx.roles.values(), key=lambda r: r.first_warp)
    total = 32 * (last.first_warp + last.warps * last.instances)
    if total > ctx.target.threads_per_cta:
        ctx.error(
            "W706",
            f"the roles need {total} threads and a CTA has at most {ctx.target.threads_per_cta}",
            ctx.kernel.span,
            facts=tuple(f"{r.name}: {32 * r.warps * r.instances} threads" for r in ctx.roles.values()),
        )
    return total


def registers(ctx: KernelContext, count: int) -> int | None:
    """Registers a thread has at launch; None leaves them to ptxas.

    One budget for all roles bounds the launch itself: as many CTAs fit an SM as that budget allows. Different budgets move
    registers between roles, which needs setmaxnreg and whole warpgroups: its pool is launch registers x threads, not the
    whole file, and an increase past it waits for ever (W702)."""
    declared = [r for r in ctx.roles.values() if r.registers is not None]
    launch = min(65536 // count // 8 * 8, ctx.target.registers_per_thread // 8 * 8 + 7)
    if not declared:
        return None
    if len(declared) != len(ctx.roles):
        missing = next(r for r in ctx.roles.values() if r.registers is None)
        ctx.error("W702", "either every role declares `registers` or none", missing.span)
        return None
    uniform = not budgets_differ(ctx)
    if not uniform and "setmaxnreg" not in ctx.target.features:
        ctx.error(
            "W711",
            f"different register budgets need setmaxnreg, which {ctx.target.name} lacks",
            declared[0].span,
            help="give every role the same budget, which caps the registers at launch",
        )
    launch = min(launch, 248)
    need = 0
    for r in declared:
        assert r.registers is not None
        if r.registers % 8 or not 24 <= r.registers <= 256:
            ctx.error("W702", f"`registers {r.registers}`: setmaxnreg takes 24 to 256 in steps of 8", r.span)
        if not uniform and (r.warps * r.instances % 4 or r.first_warp % 4 or r.warps % 4):
            ctx.error(
                "C602",
                f"role `{r.name}` has a register budget of its own, which needs whole warpgroups: its warps must be a multiple of 4",
                r.span,
            )
        need += r.registers * 32 * r.warps * r.instances
    pool = launch * count
    if need > pool:
        lines = [f"{r.name}: {r.registers} x {32 * r.warps * r.instances} threads" for r in declared]
        ctx.error(
            "W702",
            f"the roles ask for {need:,} registers and the launch allocates {launch} x {count} = {pool:,}",
            declared[-1].span,
            facts=tuple(lines),
            help="lower a budget; an increase past the pool waits for ever",
        )
    if uniform and declared[0].registers:
        resident = max(1, 65536 // (declared[0].registers * count))
        return min(launch, 65536 // (count * resident) // 8 * 8)  # as many as still fit that many CTAs
    return launch


def budgets_differ(ctx: KernelContext) -> bool:
    """True if roles exchange registers (setmaxnreg)."""
    return len({r.registers for r in ctx.roles.values()}) > 1


def check_named(ctx: KernelContext, count: int) -> list[x.NamedBarrier]:
    """Named barriers with the CTA's own count; W705 past the sixteen of the hardware."""
    if ctx.next_named > ctx.target.named_barriers:
        ctx.error(
            "W705",
            f"the kernel needs {ctx.next_named} named barriers and a CTA has {ctx.target.named_barriers}",
            ctx.kernel.span,
            facts=tuple(f"{b.name}: {b.size}" for b in ctx.named),
        )
    return [b.model_copy(update={"threads": count}) if b.name == "cta" else b for b in ctx.named]
