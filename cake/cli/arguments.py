"""The arguments of a trial run: from the companion module, or drawn at random by dtype and by what is assumed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from cake.cli.companion import Companion
from cake.cli.outcome import error
from cake.cli.settings import Value
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.evaluate import evaluate
from cake.ir.sequences import Sequence

INTEGERS = 8
"""Integers that nothing else is said about are below this."""


def shapes(kernel: x.Kernel | Sequence, values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor; R105 for more bytes than a run on this machine can hold."""
    out: dict[str, tuple[int, ...]] = {}
    total = 0
    for t in kernel.tensors:
        try:
            shape = tuple(int(evaluate(e, values)) for e in t.shape)
        except ZeroDivisionError:
            raise error("R104", f"the shape of `{t.name}` divides by zero", None, *_facts(values)) from None
        if any(n < 0 for n in shape):
            raise error("R104", f"`{t.name}` would have the shape {list(shape)}", None, *_facts(values))
        size = DTYPES[t.dtype].bytes
        for n in shape:
            size *= n
        total += size
        out[t.name] = shape
    limit = _memory() // 4
    if total > limit:
        text = f"the tensors take {total / 2**30:,.1f} GiB; this machine has room for {limit / 2**30:,.1f} GiB of them"
        raise error("R105", text, "a trial needs only a few tiles: choose smaller dims", *_facts(values))
    return out


def _facts(values: Mapping[str, Any]) -> list[str]:
    return [f"{n} = {v}" for n, v in values.items() if not n.startswith("%")]


def _memory() -> int:
    try:
        return int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_AVPHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return 8 << 30


def prepare(
    kernel: x.Kernel | Sequence,
    companion: Companion | None,
    dims: Mapping[str, int],
    scalars: Mapping[str, Value],
    seed: int,
) -> dict[str, Any]:
    """Every argument by name. What the command line sets wins over the module; arrays get the kernel's dtypes, so that
    the reference sees what the kernel sees."""
    numbers = {n: v for n, v in kernel.constants.items() if not isinstance(v, str)}
    values = {**numbers, **dims, **scalars}
    sizes = shapes(kernel, values)
    rng = np.random.default_rng(seed)
    inputs = companion.find("inputs") if companion else None
    if companion is None or inputs is None:
        drawn: dict[str, Any] = {**_random(kernel, sizes, values, rng)}
    else:
        given = companion.call(inputs, dict(dims), dict(kernel.constants), rng)
        drawn = _checked(kernel, companion, given, sizes)
    drawn.update(scalars)
    missing = [s.name for s in kernel.scalars if s.name not in drawn]
    if missing:
        names = ", ".join(f"`{n}`" for n in missing)
        raise error("R103", f"{kernel.name} needs a value for {names}", f"add {missing[0]}=VALUE")
    for t in kernel.tensors:
        if t.direction == "out":
            drawn[t.name] = np.zeros(sizes[t.name], numpy_dtype(t.dtype))
    return {n: drawn[n] for n in (*(t.name for t in kernel.tensors), *(s.name for s in kernel.scalars))}


def _checked(
    kernel: x.Kernel | Sequence, companion: Companion, given: Any, sizes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """What the module's ``inputs`` gave, as the kernel takes it."""
    if not isinstance(given, Mapping):
        raise companion.wrong(f"inputs gave {type(given).__name__}, not a dict")
    scalars = {s.name for s in kernel.scalars}
    known = {t.name for t in kernel.tensors} | scalars
    extra = [str(n) for n in given if n not in known]
    if extra:
        raise companion.wrong(f"inputs gave `{extra[0]}`, which {kernel.name} does not take")
    out = {n: v.item() if hasattr(v, "item") else v for n, v in given.items() if n in scalars}
    for t in kernel.tensors:
        if t.direction == "out":
            continue
        if t.name not in given:
            raise companion.wrong(f"inputs gave no `{t.name}`")
        array = np.asarray(given[t.name])
        if array.shape != sizes[t.name]:
            raise companion.wrong(f"inputs gave `{t.name}` as {list(array.shape)}; it is {list(sizes[t.name])}")
        try:
            out[t.name] = array.astype(numpy_dtype(t.dtype), copy=False)
        except (TypeError, ValueError) as problem:
            raise companion.wrong(f"`{t.name}` cannot be {t.dtype}: {problem}") from None
    return out


# ---- random arguments -----------------------------------------------------------------------------------------------


def _random(
    kernel: x.Kernel | Sequence,
    sizes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Any],
    rng: np.random.Generator,
) -> dict[str, Any]:
    return {
        t.name: _tensor(t, sizes[t.name], [a for a in kernel.assumes if a.tensor == t.name], values, rng)
        for t in kernel.tensors
        if t.direction != "out"
    }


def _tensor(
    t: x.Tensor, shape: tuple[int, ...], assumes: list[x.Condition], values: Mapping[str, Any], rng: np.random.Generator
) -> Any:
    kind = DTYPES[t.dtype].kind
    forms = {a.form: [int(evaluate(e, values)) for e in a.args] for a in assumes if a.form in ("within", "increasing")}
    points = [[int(evaluate(e, values)) for e in a.args] for a in assumes if a.form == "element"]
    special = {a.form for a in assumes}
    dtype = numpy_dtype(t.dtype)
    if "zero" in special:
        return np.zeros(shape, dtype)
    if kind == "float":
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    size = int(np.prod(shape, dtype=np.int64))
    lo, hi = forms.get("within", [0, INTEGERS])
    ends = [p[-1] for p in points]
    if "within" not in forms and ends:
        lo, hi = min(ends), max(ends) + 1
    if "unique" in special:
        array = (lo + rng.permutation(max(size, hi - lo))[:size]).reshape(shape)
    else:
        array = rng.integers(lo, max(hi, lo + 1), shape)
    if "increasing" in special:
        array = np.sort(array.reshape(-1)).reshape(shape)
    for *index, value in points:
        if all(-n <= i < n for i, n in zip(index, shape, strict=True)):
            array[tuple(index)] = value
    return array.astype(dtype)
