"""What names mean at a point of the program: versions and definitions."""

from __future__ import annotations

from cake.facts.convert import Reader
from cake.facts.formula import Flag, Formula
from cake.facts.linear import Lin, atom, symbol


class Versioned(Reader):
    """Reads names as their current version, with definitions put in."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, int] = {}
        self.defined: dict[str, Lin] = {}
        self.truths: dict[str, Formula] = {}
        self.texts: dict[str, tuple[str, frozenset[str]]] = {}
        self.used: set[str] = set()

    def copy(self) -> Versioned:
        new = Versioned()
        new.versions = dict(self.versions)
        new.defined = dict(self.defined)
        new.truths = dict(self.truths)
        new.texts = dict(self.texts)
        new.used = set(self.used)
        new._lins = dict(self._lins)
        new._formulas = dict(self._formulas)
        return new

    def rename(self, name: str) -> str:
        version = self.versions.get(name)
        return name if version is None else f"{name}'{version}"

    def name(self, name: str) -> Lin:
        known = self.rename(name)
        found = self.defined.get(known)
        return symbol(known) if found is None else found

    def flag(self, name: str) -> Formula:
        known = self.rename(name)
        return self.truths.get(known, Flag(atom("sym", known)))

    def reset(self) -> None:
        """Drop what was read under older meanings."""
        self._lins.clear()
        self._formulas.clear()
