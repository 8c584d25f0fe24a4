"""Register indices as C text that folds: sums of constant multiples of loop variables.

A statement over a register tile is emitted as a fully unrolled loop over registers. Everything that depends on the
register is then an ``Index``: dividing and taking remainders by the tile's extents is done here, exactly, so that the
text stays short (``8 * (i / 4) + i % 2``) and the compiler sees only constants after unrolling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Index:
    """``const`` plus the sum of ``coefficient * atom``; an atom is C text of product precedence with a value >= 0."""

    terms: tuple[tuple[str, int], ...] = ()
    const: int = 0

    @staticmethod
    def of(value: int) -> Index:
        """A constant."""
        return Index((), value)

    @staticmethod
    def var(name: str, coefficient: int = 1, const: int = 0) -> Index:
        """A loop variable, scaled and shifted."""
        return Index(((name, coefficient),), const)

    @property
    def is_const(self) -> bool:
        """True if no loop variable occurs."""
        return not self.terms

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other)
        sums = dict(self.terms)
        for atom, c in other.terms:
            sums[atom] = sums.get(atom, 0) + c
        return Index(tuple((a, c) for a, c in sums.items() if c), self.const + other.const)

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        return Index(tuple((a, c * factor) for a, c in self.terms), self.const * factor)

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def div(self, k: int) -> Index:
        """Floor division by a positive constant."""
        if k == 1:
            return self
        if all(c % k == 0 for _, c in self.terms):
            return Index(tuple((a, c // k) for a, c in self.terms), self.const // k)
        if len(self.terms) == 1:
            (atom, c), low = self.terms[0], self.const % math.gcd(self.terms[0][1], k)
            if k % c == 0 and 0 <= self.const == low:
                return Index(((f"{atom} / {k // c}", 1),))
        return Index(((f"({self}) / {k}", 1),))

    def mod(self, k: int) -> Index:
        """Remainder by a positive constant."""
        if k == 1:
            return Index()
        if all(c % k == 0 for _, c in self.terms):
            return Index((), self.const % k)
        if len(self.terms) == 1:
            (atom, c), low = self.terms[0], self.const % math.gcd(self.terms[0][1], k)
            if k % c == 0 and 0 <= self.const == low:
                return Index(((f"{atom} % {k // c}", c),), low)
        return Index(((f"({self}) % {k}", 1),))

    def multiple(self) -> int:
        """The greatest constant that divides every value (0: always zero)."""
        return math.gcd(self.const, *(c for _, c in self.terms))

    def __str__(self) -> str:
        parts: list[str] = []
        for atom, c in self.terms:
            factor = f"({atom})" if " " in atom and abs(c) != 1 else atom
            text = factor if abs(c) == 1 else f"{abs(c)} * {factor}"
            parts.append(text if c > 0 and not parts else f"{'+' if c > 0 else '-'} {text}")
        if self.const or not parts:
            sign = "-" if self.const < 0 else "+"
            parts.append(f"{sign} {abs(self.const)}" if parts else str(self.const))
        return " ".join(parts)
