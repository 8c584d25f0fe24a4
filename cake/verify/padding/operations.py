"""What each operation does to states, and where padding must be neutral: reductions, products, atomics, trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from cake.ir.expr import Expr, Reg, registers
from cake.machine.elementwise import Array, to_f32
from cake.machine.meanings.base import set_tile
from cake.machine.meanings.bulk import Copy, TmaLoad
from cake.machine.meanings.compute import Groups
from cake.machine.meanings.matrix import Wgmma
from cake.machine.meanings.moves import Move
from cake.machine.references import Box, Elements
from cake.verify.padding import states as st
from cake.verify.padding.pairs import Pair
from cake.verify.padding.tracking import States

if TYPE_CHECKING:
    from cake.machine.instance import Instance
    from cake.machine.tape import Step

Track = Callable[["Instance", "Step"], bool | None]


def _names(e: Expr | None) -> set[str]:
    return registers(e) if e is not None else set()


# ---- registers ------------------------------------------------------------------------------------------------------


def assign(meaning: Any, states: States) -> Track:
    """An elementwise expression."""
    op = meaning.op
    value = states.pair(meaning, op.expr("value"), op.type if op.type is not None else meaning.reg_type(meaning.dst))
    assert value is not None
    names = _names(op.expr("value"))

    def track(inst: Instance, step: Step) -> bool:
        found, state = value(inst)
        states.set(inst, meaning.dst, state)
        states.came(meaning.dst.name, *names)
        set_tile(inst, meaning.dst, found)
        return True

    return track


def _grouped(groups: Groups, value: Array, state: Array, function: str) -> tuple[Array, Array]:
    """Values and states by group; what is missing is neutral padding."""
    from cake.machine.meanings.compute import neutral

    return groups.gather(value, neutral(function, value.dtype)), groups.gather(state, st.PAD | st.POSITIVE)


def offenders(function: str, value: Array, state: Array, axis: int, real: Array | None = None) -> Array:
    """Padding that is not neutral in a group that holds data (``real``: the groups that count as such besides)."""
    pad = st.kind(state) >= st.PAD
    data = st.kind(state) == st.DATA
    some = data.any(axis=axis, keepdims=True)
    if real is not None:
        some = some | np.expand_dims(real, axis)
    wrong = pad & ~st.neutral(function, value) & some
    if function.removeprefix("arg") == "max":  # nothing of the group is below zero, so zero changes nothing
        floor = (((state & st.POSITIVE) != 0) | ~data).all(axis=axis, keepdims=True)
        wrong = wrong & ~(floor & (np.asarray(value) <= 0))
    return wrong


def reduce(meaning: Any, states: States) -> Track:
    """A sum, maximum or minimum along an axis, and the place of one."""
    op = meaning.op
    value = states.pair(meaning, op.expr("value"), meaning.domain)
    assert value is not None
    function = str(op.attrs["function"]).removeprefix("arg")
    groups: Groups = meaning.groups
    axis = -1 if groups.axis == 1 else -2
    results = [op.reg(n) for n in ("dst", "index") if isinstance(op.operands.get(n), Reg)]
    names = _names(op.expr("value"))

    def track(inst: Instance, step: Step) -> None:
        v, s = (np.broadcast_to(a, meaning.domain.shape) for a in value(inst))
        held, state = _grouped(groups, v, s, function)
        states.report("reduced", offenders(function, held, state, axis), held, str(op.attrs["function"]), *names)
        for reg in results:
            states.set(inst, reg, st.gathered(state, axis))
            states.came(reg.name, *names)

    return track


def running(meaning: Any, states: States) -> Track:
    """A tracker: the best of all tiles so far. Padding of a tile that holds no data competes with the other tiles' data, and so does
    padding that takes the place of a floor."""
    op = meaning.op
    value = states.pair(meaning, op.expr("value"), meaning.domain)
    assert value is not None
    floor = states.pair(meaning, op.expr("floor"), meaning.domain)
    function = str(op.attrs.get("function", "argmax"))
    names = _names(op.expr("value")) | _names(op.expr("floor"))
    best, column = op.reg("best"), op.reg("column")

    def track(inst: Instance, step: Step) -> None:
        v, s = (np.broadcast_to(a, meaning.domain.shape) for a in value(inst))
        if floor is not None:
            least = [np.broadcast_to(a, meaning.domain.shape)[..., :1] for a in floor(inst)]
            v, s = (np.concatenate(both, axis=-1) for both in zip((v, s), least, strict=True))
        old = states.tile(inst, best.name)
        real = (st.kind(old) == st.DATA).any(axis=-1)
        states.report("reduced", offenders(function, v, s, -1, real), v, function, *names)
        now = np.maximum(old, st.gathered(s, -1)[..., None])
        states.set(inst, best, now)
        states.set(inst, column, now)

    return track


# ---- element moves --------------------------------------------------------------------------------------------------


def _state_at(states: States, meaning: Move, inst: Instance, at: Elements | Box) -> Array:
    if isinstance(at, Elements):
        held = states.at(inst, meaning.reference.ref.base, at)
        index = tuple(np.asarray(i) for i in np.broadcast_arrays(*at.index))
        return np.broadcast_to(held[index], meaning.shape)
    assert meaning.block is not None
    return states.box(inst, meaning.block, at)


def load(meaning: Any, states: States) -> Track:
    """Elements into registers; what the predicate leaves out is padding."""
    op = meaning.op
    other = states.pair(meaning, op.expr("other"), op.type)
    base = meaning.reference.ref.base

    def track(inst: Instance, step: Step) -> None:
        where = meaning.mask(inst)
        state = _state_at(states, meaning, inst, meaning.resolve(inst, where))
        if where is not None:
            left = st.PAD | st.POSITIVE if other is None else st.PAD | (other(inst)[1] & st.POSITIVE)
            state = np.where(where, state, left).astype(np.uint8)
        states.set(inst, meaning.dst, state)
        states.came(meaning.dst.name, base)

    return track


def store(meaning: Any, states: States) -> Track:
    """Elements out of registers."""
    op = meaning.op
    value = states.pair(meaning, op.expr("value"), op.type)
    assert value is not None
    base, names = meaning.reference.ref.base, _names(op.expr("value"))

    def track(inst: Instance, step: Step) -> None:
        where = meaning.mask(inst)
        at = meaning.resolve(inst, where)
        v, state = value(inst)
        state = np.broadcast_to(state, meaning.shape)
        mask = np.ones(meaning.shape, dtype=bool) if where is None else where
        states.came(base, *names)
        if at.tile is None:
            states.report("stored", (st.kind(state) == st.MIXED) & mask, v, "", *names)
        if isinstance(at, Box):
            assert meaning.block is not None
            old = states.box(inst, meaning.block, at)
            states.put(inst, meaning.block, at, np.where(mask, state, old))
            return
        held = states.at(inst, base, at)
        index = meaning.selected(at, mask)
        held[index] = state[mask]

    return track


def atomic(meaning: Any, states: States) -> Track:
    """Elements combined with memory: those that stand for no data must change nothing."""
    op = meaning.op
    value = states.pair(meaning, op.expr("value"), op.type)
    assert value is not None
    function, names = str(op.attrs["function"]), _names(op.expr("value"))

    def track(inst: Instance, step: Step) -> None:
        where = meaning.mask(inst)
        v, state = value(inst)
        mask = np.ones(meaning.shape, dtype=bool) if where is None else where
        wrong = (st.kind(state) >= st.PAD) & ~st.neutral(function, v) & mask
        states.report("combined", np.broadcast_to(wrong, meaning.shape), v, f"atomic.{function}", *names)

    return track


# ---- block moves ----------------------------------------------------------------------------------------------------


def copy(meaning: Copy, states: States) -> Track:
    """A block between a tensor and shared memory."""
    src, dst = meaning.src.ref.base, meaning.dst.ref.base

    def track(inst: Instance, step: Step) -> None:
        to, at, _ = step.data
        state = states.box(inst, meaning.src, at)
        states.came(dst, src)
        if to.tile is None:
            held = meaning.src.read(inst, at)
            function = str(meaning.op.attrs.get("function", ""))
            if function:
                inside = st.kind(states.box(inst, meaning.dst, to)).reshape(state.shape) != st.PAD
                wrong = (st.kind(state) >= st.PAD) & ~st.neutral(function, held) & inside
                states.report("combined", wrong, held, f"tma.reduce {function}", src)
                return
        ranks = [cta.index for cta in meaning.targets(inst)] if isinstance(meaning, TmaLoad) else [inst.cta.index]
        for cta in ranks:
            states.put(inst, meaning.dst, to, state.reshape(meaning.dst.shape), cta)

    return track


# ---- matrices -------------------------------------------------------------------------------------------------------


def ldmatrix(meaning: Any, states: States) -> Track:
    """A shared tile into registers."""

    def track(inst: Instance, step: Step) -> None:
        states.set(inst, meaning.dst, states.box(inst, meaning.src, step.data))
        states.came(meaning.dst.name, meaning.src.ref.base)

    return track


def product(states: States, left: Pair, right: Pair, left_names: Iterable[str], right_names: Iterable[str]) -> Array:
    """The states of a @ b, [M, K] by [K, N]. Where one factor stands for no data, the product must be zero, whatever the
    other factor is."""
    (a, sa), (b, sb) = left, right
    pa, pb = st.kind(sa) >= st.PAD, st.kind(sb) >= st.PAD
    rows: Array = np.asarray((st.kind(sa) == st.DATA).any(axis=1))
    cols: Array = np.asarray((st.kind(sb) == st.DATA).any(axis=0))
    some_a, some_b = np.asarray(a != 0), np.asarray(b != 0)
    heavy_a, heavy_b = pa & some_a & rows[:, None], pb & some_b & cols[None, :]
    if heavy_a.any() or heavy_b.any():
        wrong = (_meet(heavy_a, some_b) | _meet(some_a, heavy_b)) & rows[:, None] & cols[None, :]
        states.report("multiplied", wrong, np.zeros(()), "", *left_names, *right_names)
    hidden_a, hidden_b = st.kind(sa) != st.DATA, st.kind(sb) != st.DATA
    wild_a, wild_b = ((sa & st.WILD) != 0) & ~hidden_a, ((sb & st.WILD) != 0) & ~hidden_b
    states.report("wild", _meet(~some_a & hidden_a & rows[:, None], wild_b), np.zeros(()), "", *right_names)
    states.report("wild", _meet(wild_a, ~some_b & hidden_b & cols[None, :]), np.zeros(()), "", *left_names)
    kinds = np.where(rows[:, None] & cols[None, :], st.DATA, st.NEITHER)
    pads = (pa.any(axis=1) & ~rows)[:, None] | (pb.any(axis=0) & ~cols)[None, :]
    kinds = np.where(pads, st.PAD, kinds)
    wild: Array = np.bitwise_or.reduce(sa, axis=1)[:, None] | np.bitwise_or.reduce(sb, axis=0)[None, :]
    return np.asarray(kinds | (wild & st.WILD), dtype=np.uint8)


def _meet(a: Array, b: Array) -> Array:
    """Which elements of a product have a step at which both factors are marked."""
    steps = a.any(axis=0) & b.any(axis=1)
    if not steps.any():
        return np.zeros((a.shape[0], b.shape[1]), dtype=bool)
    return np.asarray(a[:, steps].astype(np.float32) @ b[steps].astype(np.float32) > 0)


def wgmma(meaning: Wgmma, states: States) -> Track:
    """d = a @ b (+ d)."""
    op = meaning.op
    left = None if meaning.a_ref is not None else states.pair(meaning, op.expr("a"), None)
    lefts = [meaning.a_ref.ref.base] if meaning.a_ref is not None else sorted(_names(op.expr("a")))
    rights = [meaning.b.ref.base]

    def track(inst: Instance, step: Step) -> None:
        a_box, b_box, use_acc = step.data
        if meaning.a_ref is not None:
            a, sa = meaning.a_ref.read(inst, a_box), states.box(inst, meaning.a_ref, a_box)
        else:
            assert left is not None
            a, sa = left(inst)
        b, sb = meaning.b.read(inst, b_box), states.box(inst, meaning.b, b_box)
        state = product(states, (to_f32(a), sa), (to_f32(b), sb), lefts, rights)
        _accumulate(states, inst, meaning.d, use_acc, state)
        states.came(meaning.d.name, *lefts, *rights)

    return track


def mma(meaning: Any, states: States) -> Track:
    """d += a @ b.T."""
    op = meaning.op
    left, right = states.pair(meaning, op.expr("a"), None), states.pair(meaning, op.expr("b"), None)
    assert left is not None and right is not None
    lefts, rights = sorted(_names(op.expr("a"))), sorted(_names(op.expr("b")))

    def track(inst: Instance, step: Step) -> None:
        (a, sa), (b, sb) = left(inst), right(inst)
        state = product(states, (to_f32(a), sa), (to_f32(b).T, sb.T), lefts, rights)
        _accumulate(states, inst, meaning.d, True, state)
        states.came(meaning.d.name, *lefts, *rights)

    return track


def _accumulate(states: States, inst: Instance, d: Reg, use_acc: bool, state: Array) -> None:
    """A sum over slabs: data if some of it is."""
    if use_acc:
        old = states.of(inst, d)
        ko, kn = st.kind(old), st.kind(state)
        kinds = np.where((ko == st.DATA) | (kn == st.DATA), st.DATA, np.maximum(ko, kn))
        state = np.asarray(kinds | (old & st.WILD) | (state & st.WILD), dtype=np.uint8)
    states.set(inst, d, state)


TRACKS: dict[str, Callable[[Any, States], Track]] = {
    "assign": assign,
    "reduce": reduce,
    "argreduce": reduce,
    "track": running,
    "topk": running,
    "load": load,
    "store": store,
    "stmatrix": store,
    "atomic": atomic,
    "ldmatrix": ldmatrix,
    "mma": mma,
    "wgmma": wgmma,
    "tma.load": copy,
    "tma.store": copy,
    "tma.reduce": copy,
    "cp_async": copy,
}
"""By operation; the others move nothing that states are kept of."""
