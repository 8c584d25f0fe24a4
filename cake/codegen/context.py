"""What the emission of a kernel and of one role know: names, constants, tiles, cursors, and the text written so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cake.codegen.affine import guarded_multiples, multiple
from cake.codegen.elementwise import NARROW, UNARY, Expression, Text
from cake.codegen.errors import unsupported
from cake.codegen.index import Index
from cake.codegen.liveness import Liveness
from cake.codegen.names import VALUE, Names
from cake.codegen.parameters import parameters
from cake.codegen.scoping import Scalars, leaves, statements, waited
from cake.codegen.tiles import Storage
from cake.codegen.writer import Writer
from cake.ir import expanded as x
from cake.ir.expr import Apply, Axis, Const, Expr, Sym

LANE_BASES = {
    "frag_row": ("lane", "warp"),
    "frag_col": ("lane",),
    "thread": ("lane", "warp"),
    "one": ("elected", "warp"),
}
"""Names of a role's prelude and the names that their definitions need."""


class KernelContext:
    """Names, constants and device functions of a translation unit."""

    def __init__(self, kernel: x.Kernel, device_names: set[str], chaos: bool = False) -> None:
        self.kernel = kernel
        self.chaos = chaos
        self.delays = 0  # written so far
        self.names = Names(device_names | {kernel.name})
        self.parameters = parameters(kernel, self.names, chaos)
        self.functions: dict[str, str] = {}
        """Device functions generated for the forms that occur, by name."""
        self.constants: dict[str, tuple[str, int]] = {}
        self.multiples = guarded_multiples(kernel)
        self.widths: dict[int, int] = {}
        """Elements an access of each element move emitted so far, by the ``id`` of its node."""
        self.hopper = not kernel.target.startswith("sm_8")

    def constant(self, name: str, value: int) -> str:
        """A named constant of the unit; its C name."""
        ident = self.names.get("constant", name)
        self.constants[name] = (ident, value)
        return ident

    def function(self, name: str, text: str) -> str:
        """Register a generated device function."""
        self.functions.setdefault(name, text)
        return name


class RoleContext:
    """The emission of one role (or of the entry, ``role`` None). Implements ``elementwise.Scope``."""

    def __init__(self, unit: KernelContext, role: x.Role | None, body: tuple[x.Stmt, ...]) -> None:
        self.unit, self.kernel, self.role = unit, unit.kernel, role
        self.names = Names(parent=unit.names)
        self.writer = Writer()
        self.needs: set[str] = set()
        self.guard: str | None = None  # the executor that the surrounding `if` has already selected
        self.reason: str | None = None
        self.tiles: dict[str, Storage] = {}
        self.computed: set[str] = set()
        self.live = Liveness(body)
        self.cursors: dict[str, int] = dict(role.cursors) if role else {}
        self.phased = waited(body)
        self.scalars = Scalars(body, bool(role and role.solo))
        self._global = {s.name for s in self.kernel.scalars} | {d.name for d in self.kernel.dims}
        self._dims = {d.name for d in self.kernel.dims}
        self._nonnegative: set[str] = set()
        self._multiple = dict(unit.multiples)
        self._hoists: dict[tuple[str, str], tuple[str, str]] | None = None
        self._local = self.names
        self.flat = False  # the operation being emitted sets a scalar
        self.loops: list[str] = []  # C names of the counters of the loops around, outermost first
        if role is not None:
            for name, tile in role.tiles.items():
                self.tiles[name] = Storage(self.names.get("tile", name), tile, role.threads)
            for name in role.cursors:
                self.names.get("cursor", name)
            if role.var:
                self.names.get("sym", role.var)
        for _, node in statements(body):
            for leaf in leaves(node):
                if isinstance(leaf, Sym) and not leaf.name.startswith("%"):
                    self.names.get("sym", leaf.name)
            if isinstance(node, x.For):
                self.names.get("sym", node.var)

    # -- the program around -------------------------------------------------------------------------------------------

    @property
    def threads(self) -> int:
        """Threads of the executing instance (the entry: of the CTA)."""
        return self.role.threads if self.role else self.kernel.threads

    @property
    def warps(self) -> int:
        """Warps of the executing instance."""
        return self.threads // 32

    def need(self, name: str) -> str:
        """Note that a name of the prelude is used."""
        if name == "one" and self.role is not None and self.warps == 1:
            name = "elected"
        self.needs.add(name)
        for other in LANE_BASES.get(name, ()):
            if other != "warp" or self.warps > 1:
                self.need(other)
        return name

    def lane(self, text: str) -> str:
        """Note the prelude names in a lane-dependent base; its text."""
        for word in text.replace("(", " ").replace(")", " ").split():
            if word in ("lane", "warp", "thread", "frag_row", "frag_col"):
                self.need(word)
        return text

    @property
    def instance(self) -> str | None:
        """C text of the instance index; None where there is one instance."""
        if self.role is None or self.role.instances == 1:
            return None
        return self.names.get("sym", self.role.var) if self.role.var else self.need("instance")

    # -- scalars ------------------------------------------------------------------------------------------------------

    def symbol(self, sym: Sym) -> Text:
        """A uniform scalar."""
        if sym.name.startswith("%"):
            return Text(self.need(sym.name[1:]))
        if self.role is not None and sym.name == self.role.var:
            return Text(self.instance or "0")
        name = self.names.get("sym", sym.name)
        if sym.name not in self._global:
            return Text(name)
        return Text(f"{sym.dtype}_at(p.{name}.bits, 0)" if sym.dtype in NARROW else f"p.{name}")

    def storage(self, name: str) -> Storage:
        """The array of a register tile."""
        return self.tiles[name]

    def expr(self, e: Expr, level: int = 0) -> str:
        """C text of a scalar expression."""
        return Expression(self).text(e, level)

    def define(self, name: str, value: Expr) -> None:
        """Remember what is known about a variable set once."""
        if name in self.scalars.local:
            if self.nonnegative(value):
                self._nonnegative.add(name)
            self._multiple[name] = self.multiple(value)

    def define_loop(self, node: x.For) -> None:
        """Remember what is known about a loop variable."""
        if self.nonnegative(node.lo) and (node.role == "tiles" or self.nonnegative(node.step)):
            self._nonnegative.add(node.var)

    def nonnegative(self, e: Expr) -> bool:
        """True if the value is known to be at least zero (dims are at least 1)."""
        if isinstance(e, Const):
            return e.value >= 0
        if isinstance(e, Axis):
            return True
        if isinstance(e, Sym):
            known = (
                e.name in self._dims or e.name.startswith("%") or (self.role is not None and e.name == self.role.var)
            )
            return known or e.name in self._nonnegative
        if isinstance(e, Apply):
            if e.op == "%":
                return self.nonnegative(e.args[1])
            if e.op == "max":
                return any(self.nonnegative(a) for a in e.args)
            if e.op == "where":
                return all(self.nonnegative(a) for a in e.args[1:])
            if e.op in ("+", "*", "//", "cdiv", "min", "cast", "abs"):
                return e.op == "abs" or all(self.nonnegative(a) for a in e.args)
        return False

    def multiple(self, e: Expr) -> int:
        """A constant that divides the value (0: always zero)."""
        return multiple(e, lambda name: self._multiple.get(name, 1))

    # -- statements ---------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Write one line."""
        self.writer.line(text)

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Collect what is written and hoisted for one operation; braces surround it if anything was hoisted (unless
        it sets a scalar, which must outlive it)."""
        outer, self.writer = self.writer, Writer()
        self.writer.span = outer.span
        self._hoists, self._local, self.flat = {}, Names(parent=self.names), False
        yield
        inner, self.writer, hoists, self._hoists = self.writer, outer, self._hoists, None
        if hoists and not self.flat:
            self.line("{")
            self.writer.depth += 1
        for (ctype, value), (name, _) in hoists.items():
            const = f"{ctype[:-1]}*const" if ctype.endswith("*") else f"const {ctype}"
            self.line(f"{ctype} {name};" if value == name else f"{const} {name} = {value};")
        self.writer.splice(inner)
        if hoists and not self.flat:
            self.writer.depth -= 1
            self.line("}")
        if self.flat:
            self.names.adopt(self._local)

    def hoist(self, ctype: str, hint: str, value: str) -> str:
        """A constant computed before the operation; equal values share a name."""
        assert self._hoists is not None
        if value.lstrip("-").isdigit():
            return value
        key = (ctype, value)
        if key not in self._hoists:
            self._hoists[key] = (self._local.fresh(hint), value)
        return self._hoists[key][0]

    def fresh(self, hint: str) -> str:
        """A name local to the operation."""
        return self._local.fresh(hint)

    def hoists_array(self, ctype: str, name: str, count: int) -> None:
        """An uninitialised array of the operation."""
        assert self._hoists is not None
        self._hoists[(ctype, f"{name}[{count}]")] = (f"{name}[{count}]", "")

    def assign_scalar(self, name: str, dtype: str, value: str) -> None:
        """Set a scalar variable: a constant where all its uses lie in this block. Hoisted names must outlive the
        operation."""
        ident = self.names.get("sym", name)
        self.flat = True
        self.line(f"const {VALUE[dtype]} {ident} = {value};" if name in self.scalars.local else f"{ident} = {value};")

    @contextmanager
    def unrolled(self, count: int, unit: int = 1, var: str = "i") -> Iterator[Index]:
        """A fully unrolled loop; yields ``unit`` times its variable. No loop for a single pass."""
        if count == 1:
            yield Index()
            return
        with self.unrolled_from(0, count, unit, var) as index:
            yield index

    @contextmanager
    def unrolled_from(self, first: int, count: int, unit: int, var: str = "i") -> Iterator[Index]:
        """A fully unrolled loop over ``first <= var < count``; yields ``unit * var``."""
        if count - first == 1:
            yield Index.of(first * unit)
            return
        outer, self.writer = self.writer, Writer()
        self.writer.span = outer.span
        names = self._local if self._hoists is not None else self.names
        var = names.fresh(var)
        yield Index.var(var, unit)
        names.release(var)
        inner, self.writer = self.writer, outer
        self.loop(f"for (int {var} = {first}; {var} < {count}; ++{var})", inner)

    def loop(self, head: str, inner: Writer) -> None:
        """A fully unrolled loop around lines written before."""
        head = f"UNROLLED {head}"
        if len(inner.lines) == 1 and len(head) + len(inner.lines[0][1]) < 100:
            self.line(f"{head} {inner.lines[0][1]}")
        else:
            with self.writer.block(head):
                self.writer.splice(inner)

    # -- rings --------------------------------------------------------------------------------------------------------

    def slot(self, slot: x.Slot | None, slots: int) -> Text:
        """C text of a slot's number in a ring of ``slots``."""
        if slots == 1 or slot is None:
            return Text("0")
        if slot.cursor is None:
            return Text(str(slot.back % slots))
        stages = self.cursors[slot.cursor]
        if stages != slots:
            raise unsupported(
                f"Cursor {slot.cursor} walks {stages} stages, but {slots} slots are reached through it.",
                "give a ring with other slots a cursor of its own",
            )
        name = self.cursor(slot.cursor)
        back = slot.back % slots
        return Text(f"slot_back({name}, {back}, {slots})" if back else name)

    def cursor(self, name: str) -> str:
        """C text of a cursor's slot."""
        ident = self.names.get("cursor", name)
        return f"{ident}.slot" if name in self.phased else ident

    def parity(self, slot: x.Slot, slots: int, ahead: int) -> str:
        """C text of the parity of phase ``position // slots + ahead``."""
        if slot.cursor is None:
            return str((slot.back // slots + ahead) & 1)
        ident = self.names.get("cursor", slot.cursor)
        flips = (slot.back // slots + ahead) & 1
        text = f"{ident}.phase"
        if slot.back % slots:
            text += f" ^ ({ident}.slot < {slot.back % slots})"
        return text + (" ^ 1" if flips else "")

    def barrier(self, name: str, slot: x.Slot) -> str:
        """Shared address of the mbarrier of a slot."""
        b = self.kernel.barrier(name)
        text = f"smem + {self.unit.constant(name, b.offset)}"
        at = self.slot(slot, b.slots)
        return text if at.text == "0" else f"{text} + 8 * {at.at(UNARY)}"
