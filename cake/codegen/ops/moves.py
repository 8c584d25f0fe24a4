"""Element moves: load, store, atomic, scalars, flags; and cp.async.

An access is as wide as the layout's run of consecutive elements allows, at most 16 bytes. Under a predicate that
differs between the elements of a vector, the access is by element unless the op states the width over which the
predicate is uniform (``vector``).
"""

from __future__ import annotations

import math

from cake.codegen.address import GlobalAddress, SharedView, contiguous_axis, element_subs, scalar_part, strides
from cake.codegen.affine import affine
from cake.codegen.context import RoleContext
from cake.codegen.elementwise import CHOICE, UNARY, Expression
from cake.codegen.errors import unsupported
from cake.codegen.index import Index
from cake.codegen.names import CTYPE, VALUE, size_of
from cake.codegen.ops.registry import op
from cake.codegen.ops.tma import policy
from cake.codegen.ops.words import domain_of, joined, map_of, storage_per, target, value_domain, word
from cake.codegen.tiles import Site
from cake.ir import expanded as x
from cake.ir.expr import Axis, Const, Expr, Reg, walk
from cake.ir.layout import RegisterMap


class Memory:
    """The memory side of an element move: tensor or shared buffer."""

    def __init__(self, role: RoleContext, ref: x.Ref) -> None:
        self.role, self.ref = role, ref
        self.tensor = role.kernel.tensor(ref.base)
        self.dtype = self.tensor.dtype if self.tensor else role.kernel.buffer(ref.base).dtype
        self.address = GlobalAddress(role, ref) if self.tensor else SharedView(role, ref)

    @property
    def space(self) -> str:
        """Suffix of the access functions."""
        if self.tensor is None:
            return "peer" if self.ref.peer is not None else "shared"
        return "global"

    def at(self, site: Site | None) -> str:
        """C text of an element's address."""
        return self.address.at(site) if isinstance(self.address, GlobalAddress) else self.address.element(site)

    def run(self, m: RegisterMap) -> int:
        """Elements of consecutive registers that are consecutive in memory, at most 16 bytes of them."""
        axis = contiguous_axis(self.ref)
        if axis is None:
            return 1
        run = math.gcd(m.lin_vector if axis == "lin" else m.run, 16 // size_of(self.dtype))
        if isinstance(self.address, SharedView) and not self.address.swizzle:
            run = math.gcd(run, self.address.row_bytes // self.address.size) if self.address.tile_rows > 1 else run
            last = affine(element_subs(self.ref)[-1])
            if last is not None and self.address.buffer.offset % 16 == 0:
                run = math.gcd(run, last.const)
                for e, c in last.uniform:
                    run = math.gcd(run, c * self.role.multiple(e))
        return max(run, 1)


def _width(node: x.Op, memory: Memory, m: RegisterMap) -> int:
    """Elements an access; whoever asks what was emitted finds it in the unit."""
    width = memory.role.unit.widths[id(node)] = _widest(node, memory, m)
    return width


def _widest(node: x.Op, memory: Memory, m: RegisterMap) -> int:
    run = memory.run(m) if memory.dtype != "bool" else 1
    where = node.expr("where")
    proven = node.attrs.get("vector")
    if proven is not None:
        return math.gcd(run, int(proven))
    if where is not None and any(isinstance(n, Reg) or (isinstance(n, Axis) and n.axis != "row") for n in walk(where)):
        return 1
    return run


def _condition(role: RoleContext, where: Expr | None, site: Site | None) -> str | None:
    if where is None or (isinstance(where, Const) and where.value):
        return None
    return Expression(role, site).text(where)


@op("load")
def _load(role: RoleContext, node: x.Op) -> None:
    dst, where, other = node.reg("dst"), node.expr("where"), node.expr("other")
    m = map_of(role, domain_of(role, node))
    memory, storage = Memory(role, node.ref("src")), role.storage(dst.name)
    per, width = storage.per, _width(node, memory, m)
    zero = other if other is not None else Const(value=0, dtype=memory.dtype)
    hint = policy(node)
    function = _load_function(memory, hint is not None)
    tail = f", {hint:#x}ull" if hint is not None and memory.tensor else ""
    unit = max(width, per)
    with role.unrolled(m.count // unit, unit) as i:
        site = Site(m, i)
        _, at = target(role, dst, site)
        if width >= per:
            count = width // per
            condition = joined(_condition(role, where, site), _lane(role, site.valid()))
            access = f"{function}<{count}>({storage.pointer(at.div(per))}, {memory.at(site)}{tail});"
            if condition is None:
                role.line(access)
            else:
                for k in range(count):
                    role.line(f"{storage.name}[{at.div(per) + k}] = {word(role, zero, m, i + per * k, per)};")
                role.line(f"if ({condition}) {access}")
        else:
            bits = []
            for k in range(per):
                one = Site(m, i + k)
                text = f"load_bits_{memory.space}<uint{8 * size_of(memory.dtype)}_t>({memory.at(one)})"
                condition = joined(_condition(role, where, one), _lane(role, one.valid()))
                rest = word(role, zero, m, i + k, 1)
                bits.append(f"{condition} ? {text} : {rest}" if condition else text)
            role.line(f"{storage.name}[{at.div(per)}] = join{per}_{8 * size_of(memory.dtype)}({', '.join(bits)});")


def _lane(role: RoleContext, text: str | None) -> str | None:
    return role.lane(text) if text is not None else None


def _load_function(memory: Memory, hint: bool) -> str:
    if memory.tensor is None:
        return f"load_{memory.space}"
    if hint:
        return "load_global_hint"
    return "load_global_nc" if memory.tensor.direction == "in" else "load_global"


@op("store")
def _store(role: RoleContext, node: x.Op) -> None:
    where, value = node.expr("where"), node.expr("value")
    memory = Memory(role, node.ref("dst"))
    assert value is not None
    if node.type is None:
        _scalar_access(role, node, memory, value)
        return
    m = map_of(role, value_domain(node))
    per, word_type = storage_per(role, value_domain(node))
    width = _width(node, memory, m)
    unit = max(width, per)
    holder = _lane(role, Site(m, Index()).first_holder())
    with role.unrolled(m.count // unit, unit) as i:
        site = Site(m, i)
        if width >= per:
            count = width // per
            condition = joined(holder, _lane(role, site.valid()), _condition(role, where, site))
            values = ", ".join(word(role, value, m, i + per * k, per) for k in range(count))
            access = f"store_{memory.space}<{word_type}>({memory.at(site)}, {values});"
            role.line(f"if ({condition}) {access}" if condition else access)
        else:
            for k in range(per):
                one = Site(m, i + k)
                condition = joined(holder, _lane(role, one.valid()), _condition(role, where, one))
                bits = word(role, value, m, i + k, 1)
                access = f"store_{memory.space}<uint{8 * size_of(memory.dtype)}_t>({memory.at(one)}, {bits});"
                role.line(f"if ({condition}) {access}" if condition else access)


def _scalar_word(role: RoleContext, value: Expr, dtype: str) -> tuple[str, str]:
    """C text and type of a scalar as it lies in memory."""
    if VALUE[dtype] == "float" and dtype not in ("f32", "tf32"):
        return f"pack_{dtype}({Expression(role).unrounded(value)})", f"uint{8 * size_of(dtype)}_t"
    return role.expr(value), CTYPE[dtype]


def _scalar_access(role: RoleContext, node: x.Op, memory: Memory, value: Expr) -> None:
    """A scalar, stored by one thread."""
    condition = _condition(role, node.expr("where"), None)
    if role.guard is None:
        condition = joined(f"{role.need('thread')} == 0", condition)
    text, ctype = _scalar_word(role, value, memory.dtype)
    access = f"store_{memory.space}<{ctype}>({memory.at(None)}, {text});"
    role.line(f"if ({condition}) {access}" if condition else access)


@op("load_scalar")
def _load_scalar(role: RoleContext, node: x.Op) -> None:
    dst, memory = node.sym("dst"), Memory(role, node.ref("src"))
    where, other = _condition(role, node.expr("where"), None), node.expr("other")
    function = _load_function(memory, False)
    word = (
        CTYPE[memory.dtype]
        if CTYPE[memory.dtype] not in ("bf16", "f16", "e4m3", "e5m2")
        else (f"uint{8 * size_of(memory.dtype)}_t")
    )
    text = f"{function.replace('load_', 'load_bits_', 1)}<{word}>({memory.at(None)})"
    if word.startswith("uint") and memory.dtype != "u8":
        text = f"{memory.dtype}_at({text}, 0)"
    if where is not None:
        rest = role.expr(other, CHOICE) if other is not None else "0"
        text = f"{where} ? {text} : {rest}"
    role.assign_scalar(dst.name, dst.dtype, text)


@op("atomic")
def _atomic(role: RoleContext, node: x.Op) -> None:
    where, value, memory = node.expr("where"), node.expr("value"), Memory(role, node.ref("dst"))
    assert value is not None
    function = f"reduce_{node.attrs['function']}_{memory.space}"
    if memory.dtype not in ("f32", "i32"):
        raise unsupported(f"An atomic on {memory.dtype}.", "atomics combine f32 and i32", node.span)
    if node.type is None:
        condition = _condition(role, where, None)
        if role.guard is None:
            condition = joined(f"{role.need('thread')} == 0", condition)
        access = f"{function}({memory.at(None)}, {role.expr(value)});"
        role.line(f"if ({condition}) {access}" if condition else access)
        return
    m = map_of(role, value_domain(node))
    holder = _lane(role, Site(m, Index()).first_holder())
    width = _width(node, memory, m) if node.attrs.get("vector") is not None else 1
    with role.unrolled(m.count // width, width) as i:
        site = Site(m, i)
        condition = joined(holder, _lane(role, site.valid()), _condition(role, where, site))
        values = ", ".join(Expression(role, Site(m, i + k)).text(value) for k in range(width))
        access = f"{function}({memory.at(site)}, {values});"
        role.line(f"if ({condition}) {access}" if condition else access)


# ---- flags between CTAs ---------------------------------------------------------------------------------------------


@op("draw")
def _draw(role: RoleContext, node: x.Op) -> None:
    last, dst = node.expr("last"), node.sym("dst")
    assert last is not None
    counter = GlobalAddress(role, node.ref("counter")).at(None)
    role.assign_scalar(dst.name, dst.dtype, f"draw({counter}, {role.expr(last)})")


@op("signal")
def _signal(role: RoleContext, node: x.Op) -> None:
    value = node.expr("value")
    assert value is not None
    role.line(f"signal({GlobalAddress(role, node.ref('flag')).at(None)}, {role.expr(value)});")


@op("wait_until")
def _wait_until(role: RoleContext, node: x.Op) -> None:
    value = node.expr("value")
    assert value is not None
    role.line(f"wait_until({GlobalAddress(role, node.ref('flag')).at(None)}, {role.expr(value)});")


# ---- cp.async -------------------------------------------------------------------------------------------------------


@op("cp_async")
def _cp_async(role: RoleContext, node: x.Op) -> None:
    """Copy a box in 16-byte pieces, dealt to the instance's threads row by row; a piece outside the tensor is filled
    with zeros."""
    dst, src = node.ref("dst"), node.ref("src")
    tensor = role.kernel.tensor(src.base)
    assert tensor is not None
    view = SharedView(role, dst)
    row0, col0, rows, cols = view.starts()
    kept = [n for n, s in enumerate(src.subs) if isinstance(s, x.Range)]
    piece = 16 // view.size
    if kept[-1:] != [len(src.subs) - 1] or len(kept) > 2 or cols % piece or src.transposed or dst.transposed:
        raise unsupported(
            "A cp_async that is not a box of rows of 16-byte pieces.", "copy whole pieces of rows", node.span
        )
    per_row, pieces = cols // piece, rows * cols // piece
    rounds = -(-pieces // role.threads)
    thread = role.lane("thread")
    with role.unrolled(rounds, role.threads) as i:
        number = thread if i == Index() else f"{thread} + {i}"
        step = None
        if role.threads % per_row == 0:
            r = Index() if i == Index() else i.div(per_row)
            row_lane = f"{thread} / {per_row}" if per_row > 1 else thread
            col_lane = f"{thread} % {per_row} * {piece}" if per_row > 1 else ""
            step = (row_lane, r, col_lane)
        else:
            step = (f"({number}) / {per_row}", Index(), f"({number}) % {per_row} * {piece}")
        lane_row, reg_row, lane_col = step
        address = _cp_address(view, row0, col0, step, i, role.threads % per_row == 0)
        inside, base, offset = [], [], []
        for n, (s, stride, extent) in enumerate(zip(src.subs, strides(role, tensor), tensor.shape, strict=True)):
            start = scalar_part(role, s.start if isinstance(s, x.Range) else s.at)  # type: ignore[union-attr]
            text, reg = start.text, Index()
            if isinstance(s, x.Range) and n == kept[-1]:
                text = " + ".join(t for t in (start.text if start.text != "0" else "", lane_col) if t) or "0"
            elif isinstance(s, x.Range):
                text = " + ".join(t for t in (start.text if start.text != "0" else "", lane_row) if t)
                reg = reg_row
            index = role.hoist("int", "x" if n == kept[-1] else "y", text) if "i)" not in text else text
            base.append(index if stride == "1" else f"int64_t({index}) * {stride}")
            if reg != Index():
                offset.append(f"int64_t({reg}) * {stride}")
                index = f"{index} + {reg}"
            bound = role.expr(extent, UNARY)
            inside.append(f"unsigned({index}) < unsigned({bound})")
        ctype = f"{'const ' if tensor.direction == 'in' else ''}{CTYPE[tensor.dtype]} *"
        start_ptr = f"p.{role.unit.names.get('tensor', tensor.name)} + ({' + '.join(base)})"
        pointer = role.hoist(ctype, "from", start_ptr) if role.threads % per_row == 0 else start_ptr
        source = " + ".join([pointer, *offset])
        valid = "16"
        last = tensor.shape[-1]
        if tensor.strided and not (isinstance(last, Const) and int(last.value) % piece == 0):
            valid = f"min(16, {view.size} * ({role.expr(last)} - {index}))"
        line = f"cp_async_16({address}, {source}, {' && '.join(inside)} ? {valid} : 0);"
        guard = f"if ({number} < {pieces}) " if pieces % role.threads else ""
        role.line(guard + line)
    if isinstance(node.completion, x.ByBarrier):
        role.line(f"cp_async_arrive({role.barrier(node.completion.barrier, node.completion.slot)});")


def _cp_address(
    view: SharedView, row0: object, col0: object, step: tuple[str, Index, str], i: Index, regular: bool
) -> str:
    from cake.codegen.address import Part

    assert isinstance(row0, Part) and isinstance(col0, Part)
    lane_row, reg_row, lane_col = step
    if not regular:
        return view.address(Part(opaque=f"{row0.text} + {lane_row}"), Part(opaque=f"{col0.text} + {lane_col}"))
    row = Part(row0.uniform, row0.multiple, lane_row, 0, reg_row + row0.reg)
    per_panel = view.swizzle // view.size if view.swizzle else 0
    # A piece's column is any multiple of 16 bytes: its chunk bits are all the lane's.
    col = Part(col0.uniform, col0.multiple, lane_col, per_panel or 0, col0.reg)
    return view.address(row, col)
