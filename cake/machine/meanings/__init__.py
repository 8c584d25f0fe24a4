"""The NumPy meaning of each operation, registered under its name in the op table."""

from __future__ import annotations

from cake.machine.meanings.base import Meaning, Needed, Unit
from cake.machine.meanings.bulk import CpAsync, TmaLoad, TmaPrefetch, TmaReduce, TmaStore
from cake.machine.meanings.compute import ArgReduce, Assign, Reduce, TopK, Track
from cake.machine.meanings.matrix import LdMatrix, Mma, StMatrix, Wgmma
from cake.machine.meanings.moves import Atomic, Draw, Load, LoadScalar, Signal, Store, WaitUntil

MEANINGS: dict[str, type[Meaning]] = {
    "assign": Assign,
    "reduce": Reduce,
    "argreduce": ArgReduce,
    "track": Track,
    "topk": TopK,
    "load": Load,
    "load_scalar": LoadScalar,
    "store": Store,
    "atomic": Atomic,
    "draw": Draw,
    "signal": Signal,
    "wait_until": WaitUntil,
    "ldmatrix": LdMatrix,
    "stmatrix": StMatrix,
    "mma": Mma,
    "wgmma": Wgmma,
    "tma.load": TmaLoad,
    "tma.store": TmaStore,
    "tma.reduce": TmaReduce,
    "tma.prefetch": TmaPrefetch,
    "cp_async": CpAsync,
}

__all__ = ["MEANINGS", "Meaning", "Needed", "Unit"]
