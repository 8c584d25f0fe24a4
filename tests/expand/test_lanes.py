"""A warp that exchanges data with itself through shared memory is brought together in between, and only then."""

from __future__ import annotations

import numpy as np
import pytest

from cake.compiler import expand_text
from cake.expand import kernel as expansion
from cake.ir import expanded as x
from tests.engines.emitted import interpret
from tests.expand.kernels import flat, role
from tests.ptx.compiled import needs_nvrtc

TEXT = """
kernel turn(x: f32[M, 64], out y: f32[M, 64]) for sm_90a:
    tiles persistent:
        r in M

    role row: warps {warps}

    smem s: f32[1, 64]

    do row:
        v: f32[1, 64] spread({vector})
        for t in tiles:
            v = load(x[t.r, cols(v)])
            {write}
            {between}
            v = load({read})
            {after}
            store(y[t.r, cols(v)], v)
"""


def made(
    write: str = "store(s[0, cols(v)], v)",
    read: str = "s[0, cols(v)]",
    *,
    between: str = "",
    after: str = "",
    warps: int = 1,
    vector: int = 2,
) -> x.Kernel:
    """The kernel above, with these statements."""
    text = TEXT.format(write=write, read=read, between=between, after=after, warps=warps, vector=vector)
    return expand_text("\n".join(line for line in text.splitlines() if line.strip()) + "\n")


def order(k: x.Kernel) -> list[str]:
    """Accesses to shared memory and what brings lanes together, in order."""
    names = {b.name for b in k.buffers}
    out: list[str] = []
    for n in flat(role(k, "row").body):
        if isinstance(n, x.SyncWarp | x.Named):
            out.append(n.kind)
        elif isinstance(n, x.Op) and any(isinstance(o, x.Ref) and o.base in names for o in n.operands.values()):
            out.append(n.op)
    return out


def test_lanes_cross() -> None:
    """What another lane wrote is read, and written anew when the loop comes round."""
    k = made(read="s[0, 63 - cols(v)]")
    assert order(k) == ["syncwarp", "store", "syncwarp", "load"]
    assert all(n.span is not None for n in flat(role(k, "row").body) if n.kind == "syncwarp")


def test_each_lane_by_itself() -> None:
    """The same elements in the same layout, turn after turn; unless a scalar in the subscript changes, or some lanes hold
    what others store."""
    assert order(made()) == ["store", "load"]
    moved = "s[0, (cols(v) + t.r) % 64]"
    assert order(made(f"store({moved}, v)", moved)) == ["syncwarp", "store", "load"]
    assert order(made(warps=4)) == ["syncwarp", "store", "syncwarp", "load"]


def test_a_barrier_is_enough() -> None:
    """``sync()`` before the read, and after it."""
    k = made(read="s[0, 63 - cols(v)]", between="sync()", after="sync()", warps=2, vector=1)
    assert order(k) == ["store", "named", "load", "named"]


def test_atomics_need_none_among_themselves() -> None:
    twice = "atomic.add(s[0, cols(v)], v)"
    assert order(made(twice, between=twice, read="x[t.r, cols(v)]")) == ["atomic", "atomic"]


@needs_nvrtc
def test_the_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter of PTX finds the race where the order is left out, and none where it is derived."""
    values = {"x": np.zeros((2, 64), np.float32), "y": np.zeros((2, 64), np.float32)}
    assert interpret(made(read="s[0, 63 - cols(v)]"), values).verdict == "clean"
    monkeypatch.setattr(expansion.lanes, "ordered", lambda role, shared: role)
    said = interpret(made(read="s[0, 63 - cols(v)]"), values)
    assert (said.verdict, said.kind) == ("broken", "race")
