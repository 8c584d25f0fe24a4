"""Comparing outputs with a reference: how far off, where most, and what was never written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cake.diagnostics import Diagnostic, Span
from cake.ir.dtypes import DTYPES

TOLERANCE = {"f32": 1e-4, "tf32": 1e-3, "f16": 2**-8, "bf16": 2**-6, "e4m3": 2**-2, "e5m2": 2**-1}
"""How far an output may be off where the module does not say, relative to the reference's largest element; integers are
exact."""


@dataclass(frozen=True)
class Comparison:
    """One output against its reference. ``limit`` is the largest error allowed, ``max_rel`` the largest error
    relative to the reference's largest element, ``worst`` its index (a NaN or an infinity in the wrong place is larger
    than all)."""

    name: str
    tolerance: float
    limit: float
    max_abs: float
    max_rel: float
    wrong: int
    nan: int
    unwritten: int
    worst: tuple[int, ...] | None
    got: float | None
    expected: float | None

    @property
    def ok(self) -> bool:
        """Whether every element is within the tolerance."""
        return self.wrong == 0


def unwritten(array: Any, poisoned: Any) -> Any:
    """Which elements still hold the pattern that outputs start with, bit for bit."""
    kind = f"u{array.dtype.itemsize}"
    return np.ascontiguousarray(array).view(kind) == np.ascontiguousarray(poisoned).view(kind)


def compare(name: str, dtype: str, got: Any, want: Any, poisoned: Any, tolerance: float | None) -> Comparison:
    """Compare an output with its reference of the same shape. NaN agrees with NaN, an infinity with itself."""
    if tolerance is None:
        tolerance = TOLERANCE.get(dtype, 0.0)
    fresh = unwritten(got, poisoned)
    g, w = got.astype(np.float64), np.asarray(want).astype(np.float64)
    # The pattern may also be a result (true, an integer, NaN), so it counts only where the element is wrong. Integers
    # are compared as such: f64 does not hold every i64.
    exact = DTYPES[dtype].kind != "float" and np.asarray(want).dtype.kind in "iub"
    alike = got == want if exact else (g == w) | (np.isnan(g) & np.isnan(w))
    with np.errstate(all="ignore"):
        error = np.where(alike, 0.0, np.abs(g - w))
        error = np.where(np.isnan(error), np.inf, np.where(alike | (error > 0), error, 1.0))
        finite = np.abs(w[np.isfinite(w)])
        largest = float(finite.max()) if finite.size else 0.0
        limit = tolerance * (largest or 1.0) if DTYPES[dtype].kind == "float" else tolerance
    wrong = error > limit
    largest_error = float(error.max()) if error.size else 0.0
    worst = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape)) if error.size else None
    return Comparison(
        name=name,
        tolerance=tolerance,
        limit=limit,
        max_abs=largest_error,
        max_rel=largest_error / largest if largest else largest_error,
        wrong=int(wrong.sum()),
        nan=int(np.isnan(g).sum()) if g.size else 0,
        unwritten=int((fresh & ~alike).sum()),
        worst=worst,
        got=float(g[worst]) if worst is not None else None,
        expected=float(w[worst]) if worst is not None else None,
    )


def finding(c: Comparison, shape: tuple[int, ...], span: Span | None) -> Diagnostic:
    """R101: an output is off by more than the tolerance."""
    total = 1
    for n in shape:
        total *= n
    where = ", ".join(map(str, c.worst or ()))
    facts = [
        f"largest error {c.max_abs:.3g} at {c.name}[{where}]: {c.got:.6g}, expected {c.expected:.6g}",
        f"allowed: {c.limit:.3g} (tolerance {c.tolerance:.3g})",
        f"NaN: {c.nan} of {total}",
        f"never written: {c.unwritten} of {total}",
    ]
    return Diagnostic(
        code="R101",
        severity="error",
        message=f"output `{c.name}` differs from the reference in {c.wrong:,} of {total:,} elements",
        span=span,
        facts=tuple(facts),
        help="elements never written point at tile or loop bounds" if c.unwritten else None,
    )
