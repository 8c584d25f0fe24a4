"""Order that authors write: ``sync``, ``fence.async``, and the barriers that several rules derive."""

from __future__ import annotations

from cake.diagnostics import Span
from cake.expand import expressions as ex
from cake.expand.context import RoleContext
from cake.expand.emission import emit_op
from cake.expand.functions import Context, arguments, function
from cake.expand.moves import ONE, check_bounds, reference, role_of
from cake.ir import expanded as x
from cake.ir import surface as s


def instance_barrier(ctx: RoleContext, reason: str, span: Span | None) -> x.Stmt:
    """A barrier over the threads of the instance; a single warp only needs its lanes ordered."""
    if ctx.role.warps == 1:
        return x.SyncWarp(reason=reason, span=span)
    name = ctx.kernel.named_barrier(ctx.role.name, ctx.threads, ctx.role.instances, True, ctx.role.span)
    return x.Named(barrier=name, reason=reason, span=span)


@function("sync")
def sync(ctx: Context, e: s.Call) -> None:
    """``sync()`` over my instance, ``sync(role)`` over all instances of the role."""
    ctx = role_of(ctx, e)
    if len(e.args) > 1 or e.kwargs:
        ctx.refuse("T003", "`sync` takes nothing, or the role", e.span)
    if not e.args:
        ctx.emit(instance_barrier(ctx, "written", e.span))
        return
    name = e.args[0].name if isinstance(e.args[0], s.Name) else ""
    if name not in ctx.kernel.roles:
        ctx.refuse("T011", "`sync` takes the name of a role", e.args[0].span)
    if name != ctx.role.name:
        ctx.refuse(
            "C601", f"role `{ctx.role.name}` cannot wait in the barrier of role `{name}`", e.span, help="use a pipeline"
        )
    if ctx.role.instances == 1:
        ctx.emit(instance_barrier(ctx, "written", e.span))
        return
    threads = ctx.threads * ctx.role.instances
    barrier = ctx.kernel.named_barrier(f"{name}.all", threads, 1, False, ctx.role.span)
    ctx.emit(x.Named(barrier=barrier, span=e.span))


@function("fence.async")
def fence_async(ctx: Context, e: s.Call) -> None:
    """``fence.async()``: my shared-memory writes before later async-proxy reads."""
    ctx = role_of(ctx, e)
    if e.args or e.kwargs:
        ctx.refuse("T003", "`fence.async` takes no arguments", e.span)
    ctx.emit(x.Fence(what="async_shared", span=e.span))


# ---- words in global memory -----------------------------------------------------------------------------------------


@function("signal", "wait_until")
def flag(ctx: Context, e: s.Call) -> None:
    """``signal(ref, value)`` publishes a global word (release), ``wait_until(ref, value)`` spins until it has the value
    (acquire). One thread does either: `sync()` before a signal gathers what the instance has written, `sync()` after a wait
    lets all of it see what was published."""
    bound = arguments(ctx, e, ("ref", "value"))
    ctx = role_of(ctx, e)
    assert isinstance(e.func, s.Name)
    name = e.func.name
    ref = reference(ctx, bound["ref"], f"the word of `{name}`")
    storage = ref.storage
    if storage.space != "global" or any(not isinstance(sub, x.Point) for sub in ref.subs):
        ctx.refuse(
            "T013", f"`{name}` takes one element of a tensor", bound["ref"].span, help="index every axis by a scalar"
        )
    if storage.dtype != "i32":
        ctx.refuse("T005", f"`{name}` takes an i32 word, not {storage.dtype}", bound["ref"].span)
    if storage.direction != "inout":
        ctx.refuse(
            "T013",
            f"`{storage.name}` is passed between CTAs, so it is read and written",
            bound["ref"].span,
            help="declare it `inout`",
        )
    value = ex.adapt(ctx, ex.scalar(ctx, bound["value"], f"as the value of `{name}`"), "i32", bound["value"].span)
    check_bounds(ctx, ref, None, ONE, e.span)
    emit_op(ctx, x.Op(op=name, executor="one", operands={"flag": ref.ref, "value": value}, span=e.span))
