"""Addresses of tensor elements (64-bit, through a hoisted pointer) and of shared memory (32-bit, swizzled).

Swizzles of 128, 64 and 32 bytes permute the 16-byte chunks of a row: bits 4-6 (4-5, 4) of the byte offset are XORed
with bits 7-9 (7-8, 7). PTX ISA 9.7.15.5.1 (matrix layouts in shared memory) and 5.5 (tensors). Where the register
part of a column touches only chunk bits that the lane part leaves zero, the whole permutation goes into the hoisted
lane address and each access costs one XOR.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cake.codegen.affine import Affine, affine
from cake.codegen.context import RoleContext
from cake.codegen.elementwise import PRODUCT, SUM, UNARY, Expression
from cake.codegen.errors import unsupported
from cake.codegen.index import Index
from cake.codegen.names import CTYPE, size_of
from cake.codegen.tiles import AxisValue, Site
from cake.ir import expanded as x
from cake.ir.expr import Apply, Axis, Expr, Reg, integer, walk

LANE_SPAN = {"frag_col": 8, "lane % 4": 4}
"""Lane parts of columns with a known bound (exclusive, a power of two)."""


@dataclass(frozen=True)
class Part:
    """One coordinate: uniform text (a multiple of ``multiple``) + lane text (below ``span``; 0: unknown) + register
    part. A coordinate that is no such sum has its whole text in ``opaque``."""

    uniform: str = ""
    multiple: int = 0
    lane: str = ""
    span: int = 1
    reg: Index = field(default_factory=Index)
    opaque: str | None = None

    @property
    def base(self) -> str:
        """The part that can be hoisted."""
        return " + ".join(t for t in (self.uniform, self.lane) if t) or "0"

    @property
    def text(self) -> str:
        """The whole coordinate."""
        if self.opaque is not None:
            return self.opaque
        reg = str(self.reg) if self.reg != Index() else ""
        return " + ".join(t for t in (self.uniform, self.lane, reg) if t) or "0"


def _scaled(text: str, factor: int, level_ok: bool) -> str:
    return text if factor == 1 else f"{factor} * {text if level_ok else f'({text})'}"


def part(role: RoleContext, form: Affine, site: Site | None) -> Part | None:
    """The parts of an affine coordinate; None if an axis has no lane + register form."""
    reg, lanes, span = Index.of(form.const), [], 1
    for axis, c in form.axes:
        assert site is not None
        value = site.axis(axis)
        if not isinstance(value, AxisValue):
            return None
        reg = reg + value.reg * c
        if value.lane is not None:
            lane = role.lane(value.lane)
            lanes.append(f"{c} * ({lane})" if c != 1 else lane)
            span = LANE_SPAN.get(value.lane, 0) if c == 1 and span == 1 else 0
    uniform, divisor = [], 0
    x_ = Expression(role, site)
    for e, c in form.uniform:
        uniform.append(x_.text(e, SUM) if c == 1 else f"{c} * {x_.text(e, UNARY)}")
        divisor = _gcd(divisor, role.multiple(Apply(op="*", args=(e, integer(c)), dtype="i32")))
    return Part(" + ".join(uniform), divisor, " + ".join(lanes), span, reg)


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def coordinate(role: RoleContext, e: Expr, site: Site | None) -> Part:
    """The parts of any integer expression."""
    form = affine(e)
    result = part(role, form, site) if form is not None else None
    return result or Part(opaque=Expression(role, site).text(e, SUM))


def scalar_part(role: RoleContext, e: Expr) -> Part:
    """The parts of a uniform expression."""
    return coordinate(role, e, None)


def element_subs(ref: x.Ref) -> tuple[Expr, ...]:
    """The subscripts as index expressions; ranges (whole views) stand for rows and columns in order."""
    ranges = sum(isinstance(s, x.Range) for s in ref.subs)
    axes = iter(("col", "row") if ref.transposed and ranges == 2 else ("row", "col")[2 - ranges :])
    out: list[Expr] = []
    for s in ref.subs:
        if isinstance(s, x.Point):
            out.append(s.at)
        elif isinstance(s, x.Elem):
            out.append(s.index)
        else:
            axis = Axis(axis=next(axes))  # type: ignore[arg-type]
            out.append(Apply(op="+", args=(s.start, axis), dtype="i32"))
    return tuple(out)


def contiguous_axis(ref: x.Ref) -> str | None:
    """The axis ("col" or "lin") along which consecutive indices are consecutive elements in memory; None if there is
    none."""
    subs = element_subs(ref)
    form = affine(subs[-1]) if subs else None
    if form is None:
        return None
    last = dict(form.axes)
    for axis in ("col", "lin"):
        others = any(_moves_along(e, axis) for e in subs[:-1])
        if last.get(axis) == 1 and not others and not last.get("lin" if axis == "col" else "col"):
            return axis
    return None


def _moves_along(e: Expr, axis: str) -> bool:
    """Whether an index may change along an axis: it has the axis in it, or elements of a register tile."""
    form = affine(e)
    if form is not None:
        return bool(dict(form.axes).get(axis))
    return any(isinstance(n, Reg) or (isinstance(n, Axis) and n.axis == axis) for n in walk(e))


# ---- tensors --------------------------------------------------------------------------------------------------------


def strides(role: RoleContext, tensor: x.Tensor) -> list[str]:
    """C text (64-bit) of each axis's stride in elements."""
    if tensor.strided:
        own = [q.ident for q in role.unit.parameters if q.kind == "stride" and q.name == tensor.name]
        return [f"p.{s}" for s in own] + ["1"]
    out = ["1"]
    for extent in reversed(tensor.shape[1:]):
        text = role.expr(extent, UNARY)
        if text == "1":
            out.append(out[-1])
        elif text.isdigit() and out[-1].isdigit():
            out.append(str(int(out[-1]) * int(text)))
        else:
            first = f"int64_t({role.expr(extent)})"
            out.append(first if out[-1] == "1" else f"{out[-1]} * {first}")
    return out[::-1]


def tensor_pointer(role: RoleContext, tensor: x.Tensor) -> str:
    """C text of the tensor's pointer."""
    return f"p.{role.unit.names.get('tensor', tensor.name)}"


class GlobalAddress:
    """Addresses of the elements of a tensor that ``ref`` names in a statement: a hoisted pointer and 64-bit offsets."""

    def __init__(self, role: RoleContext, ref: x.Ref) -> None:
        tensor = role.kernel.tensor(ref.base)
        assert tensor is not None
        self.role, self.tensor, self.subs = role, tensor, element_subs(ref)
        self.strides = strides(role, tensor)

    def at(self, site: Site | None) -> str:
        """C text of the pointer to the element at ``site``."""
        base: list[str] = []
        offset: list[str] = []
        for e, stride in zip(self.subs, self.strides, strict=True):
            q = coordinate(self.role, e, site)
            if q.opaque is not None:
                offset.append(_strided(q.opaque, stride))
                continue
            if q.base != "0":
                base.append(_strided(q.base, stride))
            if q.reg != Index():
                offset.append(_strided(str(q.reg), stride))
        ctype = f"{'const ' if self.tensor.direction == 'in' else ''}{CTYPE[self.tensor.dtype]} *"
        start = tensor_pointer(self.role, self.tensor)
        sum_ = " + ".join(base)
        first = f"({sum_})" if len(base) > 1 or " + " in sum_ else sum_
        pointer = self.role.hoist(ctype, "at", f"{start} + {first}" if base else start)
        return " + ".join([pointer, *offset])


def _strided(text: str, stride: str) -> str:
    if stride == "1":
        return text
    return f"int64_t({text}) * {stride if ' ' not in stride or '+' not in stride else f'({stride})'}"


# ---- shared memory --------------------------------------------------------------------------------------------------


class SharedView:
    """The tile of a buffer that a reference selects: its base address and the addresses inside it."""

    def __init__(self, role: RoleContext, ref: x.Ref) -> None:
        self.role, self.ref = role, ref
        self.buffer = role.kernel.buffer(ref.base)
        self.size = size_of(self.buffer.dtype)
        self.swizzle = self.buffer.swizzle
        self.row_length = self.buffer.shape[-1]
        self.tile_rows = 1
        for n in self.buffer.shape[:-1]:
            self.tile_rows *= n
        self.panel = self.tile_rows * self.swizzle if self.swizzle else 0

    @property
    def row_bytes(self) -> int:
        """Bytes from a row to the next."""
        return self.swizzle or (self.row_length + self.buffer.pad) * self.size

    def offsets(self, unit: int = 1) -> str:
        """C text of the tile's offset from the start of shared memory, in units of ``unit`` bytes."""
        b, suffix = self.buffer, f" / {unit}" if unit > 1 else ""
        name = self.role.unit.constant(b.name, b.offset)
        text = f"{name}{suffix}"
        slot = self.role.slot(self.ref.slot, b.slots)
        if slot.text != "0":
            stride = self.role.unit.constant(f"{b.name}.slot", b.slot_bytes)
            text += f" + {slot.at(PRODUCT)} * {f'({stride}{suffix})' if suffix else stride}"
        if b.instances > 1 and self.role.instance is not None:
            stride = self.role.unit.constant(f"{b.name}.instance", b.instance_bytes)
            text += f" + {self.role.instance} * {f'({stride}{suffix})' if suffix else stride}"
        return text

    @property
    def base(self) -> str:
        """Shared address of the tile (of the peer's, where the reference names one)."""
        text = f"{self.role.need('smem')} + {self.offsets()}"
        return f"peer({text}, {self.role.expr(self.ref.peer)})" if self.ref.peer is not None else text

    # -- block operations ---------------------------------------------------------------------------------------------

    def starts(self) -> tuple[Part, Part, int, int]:
        """Row and column where the view starts in the stored tile, and its stored extents (1 for axes dropped by
        points)."""
        row, rows = Part(), 1
        leading = 1
        for s, extent in zip(self.ref.subs[:-1], self.buffer.shape[:-1], strict=True):
            q = scalar_part(self.role, s.start if isinstance(s, x.Range) else _point(s))
            row = _joined(_times(row, extent), q)
            if isinstance(s, x.Range):
                rows *= s.size
            leading *= extent
        last = self.ref.subs[-1]
        if isinstance(last, x.Range):
            return row, scalar_part(self.role, last.start), rows, last.size
        return row, scalar_part(self.role, _point(last)), rows, 1

    def block_offset(self, row: Part, col: Part, unit: int = 1) -> str:
        """Offset, in ``unit`` bytes, of a block that starts at (row, col) of the tile: added to the base. The block's
        columns lie within a panel or start one."""
        terms = [_bytes(row.base, self.row_bytes // unit)] if row.base != "0" else []
        const = row.reg.const * self.row_bytes
        if not self.swizzle:
            terms += [_bytes(col.base, self.size, unit)] if col.base != "0" else []
            const += col.reg.const * self.size
        else:
            per_panel = self.swizzle // self.size
            const += (col.reg.const // per_panel) * self.panel + (col.reg.const % per_panel) * self.size
            if col.base != "0":
                if col.multiple % per_panel == 0:
                    terms.append(_bytes(_divided(col.base, per_panel), self.panel // unit))
                elif self.row_length <= per_panel:
                    terms.append(_bytes(col.base, self.size, unit))
                else:
                    raise unsupported(
                        "A run-time column inside a swizzled tile of several panels.",
                        f"start columns at multiples of the panel ({per_panel} elements) or at constants",
                    )
        if const % unit:
            raise unsupported("A block that does not start on 16 bytes.", "start blocks on 16-byte boundaries")
        if const:
            terms.append(str(const // unit))
        return " + ".join(terms)

    # -- element operations -------------------------------------------------------------------------------------------

    def element(self, site: Site | None) -> str:
        """C text of the shared address of the element at ``site``."""
        subs = element_subs(self.ref)
        row = Part()
        for e, extent in zip(subs[:-1], self.buffer.shape[:-1], strict=True):
            row = _joined(_times(row, extent), coordinate(self.role, e, site))
        return self.address(row, coordinate(self.role, subs[-1], site))

    def address(self, row: Part, col: Part) -> str:
        """C text of the address of (row, col) of the tile; lane and uniform parts are hoisted."""
        hoist = self.role.hoist
        if not self.swizzle:
            terms, reg = [self.base], Index()
            loose = []
            for q, scale in ((row, self.row_bytes), (col, self.size)):
                if q.opaque is not None:
                    loose.append(_bytes(q.opaque, scale))
                    continue
                reg = reg + q.reg * scale
                if q.base != "0":
                    terms.append(_bytes(q.base, scale))
            at = hoist("uint32_t", "at", " + ".join(terms))
            return " + ".join([at, *loose, *([str(reg)] if reg != Index() else [])])
        per_panel, sw = self.swizzle // self.size, self.swizzle
        simple = row.opaque is None and col.opaque is None
        lane_bytes = max(16, col.span * self.size)
        reg = col.reg
        if (
            simple
            and (row.reg - row.reg.const).multiple() % 8 == 0
            and col.multiple % per_panel == 0
            and col.span > 0
            and lane_bytes <= sw
            and (reg * self.size).multiple() % lane_bytes == 0
        ) or (simple and self._low_only(row, col, lane_bytes)):
            first = Part(row.uniform, row.multiple, row.lane, row.span, Index.of(row.reg.const))
            terms = [self.base]
            if first.text != "0":
                terms.append(_bytes(first.text, sw))
            if col.lane:
                terms.append(_bytes(col.lane, self.size))
            if col.uniform:
                terms.append(_bytes(_divided(col.uniform, per_panel), self.panel))
            plain = " + ".join(terms)
            at = hoist("uint32_t", "at", f"({plain}) ^ {self._pattern(first.text)}" if first.text != "0" else plain)
            in_row, panel = (reg * self.size).mod(sw), (reg * self.size).div(sw) * self.panel
            rest = (row.reg - row.reg.const) * sw + panel
            text = at if in_row == Index() else f"({at} ^ {_wrap(str(in_row))})"
            return text if rest == Index() else f"{text} + {rest}"
        offset = f"{_bytes(row.text, sw)} + {_bytes(f'({col.text}) % {per_panel}', self.size)}"
        if self.row_length > per_panel:
            offset += f" + ({col.text}) / {per_panel} * {self.panel}"
        return f"{hoist('uint32_t', 'tile', self.base)} + swizzle_{sw}({offset})"

    def _low_only(self, row: Part, col: Part, lane_bytes: int) -> bool:
        """A register part with a few low columns (pairs within the lane's span)."""
        per_panel = self.swizzle // self.size
        low = col.reg.const
        return (
            (row.reg - row.reg.const).multiple() % 8 == 0
            and col.multiple % per_panel == 0
            and col.span > 0
            and lane_bytes <= self.swizzle
            and all(c * self.size % lane_bytes == 0 for _, c in col.reg.terms)
            and low * self.size % lane_bytes < (2 * self.size if col.span == 8 else 1)
        )

    def _pattern(self, row: str) -> str:
        """C text of the XOR that a row's chunks get: (row's bits of the pattern) << 4."""
        shift, mask = {128: (0, 7), 64: (1, 3), 32: (2, 1)}[self.swizzle]
        inner = f"({row}) >> {shift} & {mask}" if shift else f"({row}) & {mask}"
        return f"(({inner}) << 4)"


def _point(s: x.Sub) -> Expr:
    assert isinstance(s, x.Point), "an index tile in a block operation"
    return s.at


def _times(q: Part, k: int) -> Part:
    if q == Part():
        return q
    if q.opaque is not None:
        return Part(opaque=f"{k} * ({q.opaque})")
    uniform = f"{k} * ({q.uniform})" if q.uniform else ""
    return Part(uniform, q.multiple * k, f"{k} * ({q.lane})" if q.lane else "", 0 if q.lane else 1, q.reg * k)


def _joined(a: Part, b: Part) -> Part:
    if a.opaque is not None or b.opaque is not None:
        return Part(opaque=" + ".join(f"({q.text})" for q in (a, b) if q.text != "0"))
    return Part(
        " + ".join(t for t in (a.uniform, b.uniform) if t),
        _gcd(a.multiple, b.multiple),
        " + ".join(t for t in (a.lane, b.lane) if t),
        b.span if not a.lane else 0,
        a.reg + b.reg,
    )


def _wrap(text: str) -> str:
    return f"({text})" if " " in text else text


def _bytes(text: str, scale: int, unit: int = 1) -> str:
    if unit > 1:
        return f"({_bytes(text, scale)}) / {unit}"
    return text if scale == 1 else f"{scale} * {_wrap(text)}"


def _divided(text: str, k: int) -> str:
    return text if k == 1 else f"{_wrap(text)} / {k}"
