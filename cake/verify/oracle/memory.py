"""Memory as versions with provenance: who wrote each atom last, through which proxy, and which fill of a ring it is.

Tags instead of values: two fills that happen to hold equal numbers are still two fills (docs/verification.md 1.9).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cake.verify.oracle.views import F, G, K, V, View
from cake.verify.search.steps import Tag


class Seen(Exception):
    """A bad execution."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


@dataclass(eq=False)
class Reader:
    """A read of the current version of an atom: its number in the sets of views, and whether the async proxy made it."""

    number: int
    asynchronous: bool
    text: str


@dataclass
class Atom:
    """One atom: the newest version, how it was written, its fill, who writes it now (an operation in flight), and its readers."""

    shared: bool
    version: int = 0
    asynchronous: bool = False
    atomic: bool = False
    tag: Tag | None = None
    text: str = ""
    busy: str = ""
    readers: list[Reader] = field(default_factory=list)


class Memory:
    """All atoms of a launch. ``policy`` collects what only a conservative rule refuses."""

    def __init__(self, shared: list[bool]) -> None:
        self.atoms = [Atom(s) for s in shared]
        self.numbers = 0
        self.shared_reads = 0
        self.policy: dict[str, str] = {}

    def _free(self, atom: Atom, text: str) -> None:
        if atom.busy:
            raise Seen("race", f"{text} overlaps {atom.busy}, which is landing")

    def _found(self, atom: Atom, tag: Tag | None, text: str) -> None:
        if atom.version == 0 and atom.shared:
            raise Seen("uninitialised", f"{text} reads what nothing has written")
        if tag is not None and tag != atom.tag:
            raise Seen("stale", f"{text} means {tag} and finds {atom.tag}")

    def _visible(self, atom: Atom, at: int, view: View, text: str) -> None:
        """A generic access needs the newest version among what it must see."""
        bounds = view.bounds
        if bounds[V, at] < atom.version:
            kind = "visibility" if bounds[K, at] >= atom.version else "race"
            raise Seen(kind, f"{text} may not see {atom.text}")

    def _published(self, atom: Atom, at: int, view: View, text: str, *, writes: bool) -> None:
        """An async access of a version: async writes are seen by their completion, generic ones need a proxy fence."""
        bounds = view.bounds
        if atom.asynchronous:
            if bounds[K if writes else V, at] < atom.version:
                kind = "visibility" if bounds[K, at] >= atom.version else "race"
                raise Seen(kind, f"{text} may not see {atom.text}")
        elif bounds[V, at] < atom.version:
            kind = "visibility" if bounds[K, at] >= atom.version else "race"
            raise Seen(kind, f"{text} may not see {atom.text}")
        elif bounds[F, at] < atom.version:
            if bounds[G, at] < atom.version:
                raise Seen("fence", f"{text}: no proxy fence after {atom.text}")
            self.policy.setdefault("misplaced", f"{text}: the fence after {atom.text} is by another thread")

    def _over(self, atom: Atom, view: View, text: str, *, asynchronous: bool) -> None:
        """Readers of what is overwritten must be known to have finished."""
        for reader in atom.readers:
            if reader.asynchronous:
                if not view.operations >> reader.number & 1:
                    raise Seen("race", f"{text} may overwrite what {reader.text} still reads")
            elif not view.reads >> reader.number & 1:
                raise Seen("race", f"{text} may overwrite what {reader.text} still reads")
            elif asynchronous and not view.fenced >> reader.number & 1:
                self.policy.setdefault("refill", f"{text}: no proxy fence after {reader.text}")

    # -- accesses -----------------------------------------------------------------------------------------------------

    def reader(self) -> int:
        """A number for a read."""
        self.numbers += 1
        return self.numbers - 1

    def read(self, atoms: list[int], tag: Tag | None, view: View, text: str, number: int) -> None:
        """A thread reads."""
        record = Reader(number, False, text)
        for at in atoms:
            atom = self.atoms[at]
            self._free(atom, text)
            self._found(atom, tag, text)
            self._visible(atom, at, view, text)
            atom.readers.append(record)
            if atom.shared:
                self.shared_reads |= 1 << number
        view.reads |= 1 << number

    def check_write(self, atoms: list[int], view: View, text: str, *, atomic: bool) -> None:
        """A thread may write (cp.async: at its issue)."""
        for at in atoms:
            atom = self.atoms[at]
            self._free(atom, text)
            if not (atomic and atom.atomic and not atom.asynchronous):
                self._visible(atom, at, view, text)
            if atomic and atom.atomic and atom.asynchronous:
                raise Seen("proxies", f"{text} combines what {atom.text} combines through another proxy")
            self._over(atom, view, text, asynchronous=False)

    def write(
        self, atoms: list[int], tag: Tag | None, text: str, *, asynchronous: bool, atomic: bool = False
    ) -> list[int]:
        """The write happens: its versions."""
        versions = []
        for at in atoms:
            atom = self.atoms[at]
            atom.version += 1
            atom.asynchronous, atom.tag, atom.text, atom.busy, atom.atomic = asynchronous, tag, text, "", atomic
            atom.readers = []
            versions.append(atom.version)
        return versions

    def async_read(self, atoms: list[int], tag: Tag | None, views: list[View], text: str, number: int) -> None:
        """An operation of the async proxy, issued by threads with these views, will read."""
        record = Reader(number, True, text)
        for at in atoms:
            atom = self.atoms[at]
            self._free(atom, text)
            self._found(atom, tag, text)
            for view in views:
                self._published(atom, at, view, text, writes=False)
            atom.readers.append(record)

    def async_write(self, atoms: list[int], view: View, text: str, *, atomic: bool) -> None:
        """An operation of the async proxy will write: from now on these atoms are landing."""
        for at in atoms:
            atom = self.atoms[at]
            if atomic and atom.atomic:
                if not atom.asynchronous:
                    raise Seen("proxies", f"{text} combines what {atom.text} combines through another proxy")
                continue
            self._free(atom, text)
            if atom.version:
                self._published(atom, at, view, text, writes=True)
            self._over(atom, view, text, asynchronous=True)
            atom.busy = text
