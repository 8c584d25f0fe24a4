"""wgmma: descriptors and the instruction forms (PTX ISA 9.7.15.5).

A shared operand is described by its start address, the leading and stride byte offsets and the swizzle. K-major
([rows, K] stored by rows): 8-row groups are 8 swizzle widths apart, and the leading offset is not used. MN-major ([K,
rows] stored by rows): the stride offset steps over 8 k and the leading offset over panels. The high word and the
leading offset are constants; per k step only the start address moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cake.codegen.address import SharedView
from cake.codegen.context import RoleContext
from cake.codegen.elementwise import CHOICE, OR
from cake.codegen.errors import unsupported
from cake.codegen.index import Index
from cake.codegen.names import size_of
from cake.codegen.ops.registry import op
from cake.ir import expanded as x
from cake.ir.expr import Const, Reg

STEP_BYTES = 32
"""Bytes of K that one instruction consumes."""
MOST_HOISTED = 8
"""Descriptors of a left operand that stays in place, which ptxas moves out of loops into two registers each. Of more than these only
the base is kept: 16 of them made attention with 256 columns spill."""
_PTX_TYPE = {"bf16": "bf16", "f16": "f16", "e4m3": "e4m3", "e5m2": "e5m2", "tf32": "tf32", "f32": "tf32"}
_LAYOUT = {128: 1, 64: 2, 32: 3}


@dataclass(frozen=True)
class Matrix:
    """A shared operand: ``base`` (C text, in 16-byte units, hoisted), the constant high word, and how the start moves
    by k step and by block of 64 rows."""

    base: str
    high: int
    dtype: str
    k_major: bool
    steps: int
    rows: int
    swizzle: int
    panel: int

    def step(self, k: Index) -> Index:
        """Offset of a k step, in 16-byte units."""
        if not self.k_major:
            return k * (STEP_BYTES // size_of(self.dtype) * self.swizzle // 16)
        per_panel = self.swizzle // STEP_BYTES
        return k.div(per_panel) * (self.panel // 16) + k.mod(per_panel) * (STEP_BYTES // 16)

    def block(self, i: Index) -> Index:
        """Offset of a block of 64 rows of the A operand."""
        if self.k_major:
            return i * (64 * self.swizzle // 16)
        return i * (64 * size_of(self.dtype) // self.swizzle * self.panel // 16)


def _matrix(role: RoleContext, ref: x.Ref, k_major: bool, name: str) -> Matrix:
    view = SharedView(role, ref)
    if view.swizzle == 0:
        raise unsupported("A wgmma operand without a swizzle.", "declare the buffer with swizzle(32 | 64 | 128)")
    row, col, rows, cols = view.starts()
    extent_k, extent_mn = (cols, rows) if k_major else (rows, cols)
    if not k_major and view.size != 2:
        raise unsupported("An MN-major operand of 8 or 32 bits.", "wgmma transposes 16-bit operands only")
    if not k_major and extent_mn * view.size > view.swizzle and 64 * view.size % view.swizzle:
        raise unsupported("Panels that do not divide 64 rows.", "use a wider swizzle")
    leading = 1 if k_major else view.panel // 16
    if leading >= 1 << 14:
        raise unsupported("Panels too far apart for a descriptor.", "use smaller tiles")
    offset = view.block_offset(row, col, 16)
    terms = [role.need("smem16"), view.offsets(16), *([offset] if offset else [])]
    role.need("smem")
    base = " + ".join(terms)
    if not k_major:
        base = f"({base}) | {leading} << 16"
    high = (8 * view.swizzle // 16) | _LAYOUT[view.swizzle] << 30
    steps = extent_k * view.size // STEP_BYTES
    hoisted = role.hoist("uint32_t", name, base)
    return Matrix(hoisted, high, view.buffer.dtype, k_major, steps, extent_mn, view.swizzle, view.panel)


@op("wgmma")
def _wgmma(role: RoleContext, node: x.Op) -> None:
    d = node.reg("d")
    acc = role.storage(d.name)
    a, b = node.operands["a"], node.ref("b")
    right = _matrix(role, b, b.transposed, "b")
    columns = d.cols[1] - d.cols[0] if d.cols else acc.type.cols
    rows = d.rows[1] - d.rows[0] if d.rows else acc.type.rows
    blocks = rows // 64
    first = (
        acc.base(d.lead) + (d.rows[0] // 64 if d.rows else 0) * (acc.type.cols // 2) + (d.cols[0] // 2 if d.cols else 0)
    )
    use = node.expr("use_acc")
    left = _matrix(role, a, not a.transposed, "a") if isinstance(a, x.Ref) else None
    if left is not None and left.steps * blocks > MOST_HOISTED:
        left = replace(left, base=role.hoist("uint32_t", "a", f"anew({left.base})"))
    steps = right.steps if left is None else left.steps
    fresh = isinstance(use, Const) and not use.value

    def issue(m: Index, k: Index, function: str, *more: str) -> None:
        args = [acc.pointer(m * (acc.type.cols // 2) + first)]
        if left is not None:
            args.append(_descriptor(left, left.block(m) + left.step(k)))
        else:
            assert isinstance(a, Reg)
            source = role.storage(a.name)
            at = (
                source.base(a.lead) // 2
                + (a.cols[0] // 8 * 2 if a.cols else 0)
                + (a.rows[0] // 64 if a.rows else 0) * (source.type.cols // 4)
            )
            args.append(source.pointer(m * (source.type.cols // 4) + k * 4 + at))
        args.append(_descriptor(right, right.step(k)))
        role.line(f"{function}({', '.join([*args, *more])});")

    with role.unrolled(blocks, var="i") as m:
        if fresh:
            issue(m, Index(), _function(role, columns, right, left, fresh=True))
        if steps > fresh:
            function = _function(role, columns, right, left)
            with role.unrolled_from(int(fresh), steps, 1, "j") as k:
                accumulate = "1"
                if use is not None and not isinstance(use, Const):
                    text = role.expr(use, OR if not k.is_const else CHOICE)
                    accumulate = text if k.is_const else f"{k} > 0 || {text}"
                issue(m, k, function, accumulate)


def _descriptor(matrix: Matrix, offset: Index) -> str:
    start = matrix.base if offset == Index() else f"{matrix.base} + {offset}"
    return f"descriptor({start}, {matrix.high:#x})"


def _function(role: RoleContext, n: int, b: Matrix, a: Matrix | None, fresh: bool = False) -> str:
    """The wrapper of one instruction form; written into the unit once. ``fresh``: of one that overwrites d, whose registers are
    outputs only, so that what they held before need not be kept."""
    k = STEP_BYTES // size_of(b.dtype)
    kind = _PTX_TYPE[b.dtype]
    left = "rs" if a is None else ("ss" if a.k_major else "ss_ta")
    name = f"wgmma_m64n{n}k{k}_{kind}_{left}{'' if b.k_major else '_tb'}{'_fresh' if fresh else ''}"
    count = n // 2
    rows = [", ".join(f"%{i}" for i in range(at, min(at + 16, count))) for at in range(0, count, 16)]
    regs = ', "\n        "'.join(rows)
    flags = "1, 1"
    if kind in ("bf16", "f16"):
        flags += f", {int(not b.k_major)}" if a is None else f", {int(not a.k_major)}, {int(not b.k_major)}"
    if a is None:
        a_ptx, a_type = f"{{%{count}, %{count + 1}, %{count + 2}, %{count + 3}}}", "const uint32_t *a"
        inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])'
        next_ = count + 4
    else:
        a_ptx, a_type, inputs, next_ = f"%{count}", "uint64_t a", '"l"(a)', count + 1
    kept = "=" if fresh else "+"
    outputs = ",\n          ".join(
        ", ".join(f'"{kept}f"(d[{i}])' for i in range(start, min(start + 8, count))) for start in range(0, count, 8)
    )
    meaning = f"d[64, {n}] = a[64, {k}] b[{k}, {n}]."
    if not fresh:
        meaning = f"d[64, {n}] {{=, +=}} a[64, {k}] b[{k}, {n}]; the sum is kept only where `accumulate`."
    role.unit.function(
        name,
        f"""// {meaning}
__device__ __forceinline__ void {name}(float *d, {a_type}, uint64_t b{"" if fresh else ", int accumulate"})
{{
    asm volatile(
        "{{\\n"
        ".reg .pred p;\\n"
        "setp.ne.b32 p, %{next_ + 1}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{kind}.{kind} "
        "{{{regs}}}, "
        "{a_ptx}, %{next_}, p, {flags};\\n"
        "}}\\n"
        : {outputs}
        : {inputs}, "l"(b), {'"n"(0)' if fresh else '"r"(accumulate)'});
}}""",
    )
    return name
