"""assign, reduce, argreduce."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cake.codegen.context import RoleContext
from cake.codegen.elementwise import NARROW, Expression, literal
from cake.codegen.errors import unsupported
from cake.codegen.index import Index
from cake.codegen.names import VALUE
from cake.codegen.ops.registry import op
from cake.codegen.ops.words import domain_of, map_of, target, value_domain, word
from cake.codegen.tiles import Site
from cake.codegen.writer import Writer
from cake.ir import expanded as x
from cake.ir.expr import Const, Reg, walk
from cake.ir.layout import QUAD, RegisterMap


@op("assign")
def _assign(role: RoleContext, node: x.Op) -> None:
    dst, value = node.reg("dst"), node.expr("value")
    assert value is not None
    m = map_of(role, domain_of(role, node))
    storage = role.storage(dst.name)
    per = storage.per
    n = m.count // per
    # An operand that reads other registers of the destination must be read before any is written.
    with role.unrolled(n, per) as i:
        site = Site(m, i)
        _, at = target(role, dst, site)
        moved = any(
            isinstance(leaf, Reg) and leaf.name == dst.name and target(role, leaf, site)[1] != at
            for leaf in walk(value)
        )
        name = role.fresh("moved") if moved else ""
        left = f"{name}[{i.div(per)}]" if moved else f"{storage.name}[{at.div(per)}]"
        role.line(f"{left} = {word(role, value, m, i, per)};")
    if moved:
        role.hoists_array(storage.word, name, n)
        with role.unrolled(n, per) as i:
            _, at = target(role, dst, Site(m, i))
            role.line(f"{storage.name}[{at.div(per)}] = {name}[{i.div(per)}];")


# ---- reductions -----------------------------------------------------------------------------------------------------


def _combine(function: str, dtype: str, a: str, b: str) -> str:
    if function == "sum":
        return f"{a} + {b}"
    return f"{function}{'_nan' if VALUE[dtype] == 'float' else ''}({a}, {b})"


def _neutral(function: str, dtype: str) -> str:
    if function == "sum":
        return literal(Const(value=0, dtype=dtype)).text  # type: ignore[arg-type]
    if VALUE[dtype] == "float":
        return "-infinity" if function == "max" else "infinity"
    return "(-2147483647 - 1)" if function == "max" else "2147483647"


def _groups(m: RegisterMap, axis: int) -> tuple[int, int]:
    """Results a thread, and registers that combine into each."""
    kind = m.layout.kind
    if axis == 1:
        if kind == "frag":
            results = 1 if m.rows == 1 else 2 * max(1, m.rows // (16 * (m.threads // 32)))
        elif kind in ("rowwise", "uniform"):
            results = m.count // m.cols
        else:
            results = 1 if m.rows == 1 else 0
    else:
        if kind == "frag":
            results = 1 if m.cols in (1, QUAD) else m.cols // 4
        elif kind in ("rowwise", "uniform"):
            results = m.cols
        else:
            results = m.count if m.rows == 1 else 0
    if results == 0:
        raise unsupported(
            f"A reduction of a [{m.rows}, {m.cols}] spread tile.", "spread tiles of one row reduce along it"
        )
    return results, m.count // results


def _member(m: RegisterMap, axis: int, result: Index, k: Index) -> Index:
    """The register of the k-th member of a result, k counting so that neighbours are independent."""
    kind = m.layout.kind
    if kind == "frag" and axis == 1:
        if m.cols in (1, QUAD):
            return result
        if m.rows == 1:
            return k
        blocks = m.rows // (16 * (m.threads // 32))
        block = result.div(2) * (m.cols // 2) if blocks > 1 else Index()
        return block + k.div(2) * 4 + result.mod(2) * 2 + k.mod(2)
    if kind == "frag":
        if m.cols in (1, QUAD) or m.rows == 1:
            return result if m.rows == 1 else k
        return k.div(2) * (m.cols // 2) + result.div(2) * 4 + k.mod(2) * 2 + result.mod(2)
    if axis == 1:
        return result * m.cols + k if kind in ("rowwise", "uniform") else k
    return k * m.cols + result if kind in ("rowwise", "uniform") else result


def _shuffles(m: RegisterMap, axis: int) -> tuple[int, ...]:
    """Lane distances over which partial results of a warp combine."""
    kind = m.layout.kind
    if kind == "frag":
        if axis == 1:
            return () if m.cols == 1 else (1, 2)
        return () if m.rows == 1 else (4, 8, 16)
    if kind in ("uniform", "perwarp") or (m.rows, m.cols) == (1, 1):
        return ()
    if kind == "rowwise":
        return () if axis == 1 or m.rows == 1 else (1, 2, 4, 8, 16)
    return () if axis == 0 else (1, 2, 4, 8, 16)


@contextmanager
def _butterfly(role: RoleContext, distances: tuple[int, ...]) -> Iterator[str]:
    """A loop over lane distances; what is written inside runs for each of them (not at all if there are none)."""
    outer, role.writer = role.writer, Writer()
    role.writer.span = outer.span
    yield "lanes"
    inner, role.writer = role.writer, outer
    if distances:
        role.loop(f"for (int lanes = {distances[0]}; lanes <= {distances[-1]}; lanes *= 2)", inner)


@op("reduce")
def _reduce(role: RoleContext, node: x.Op) -> None:
    dst, value = node.reg("dst"), node.expr("value")
    function, axis = str(node.attrs["function"]), int(node.attrs["axis"])
    assert value is not None
    m = map_of(role, value_domain(node))
    storage = role.storage(dst.name)
    dtype = value.dtype
    ctype = VALUE[dtype]
    results, members = _groups(m, axis)
    # Chains of dependent operations are what a reduction waits for: four run side by side.
    chains = next(c for c in (4, 2, 1) if results * c <= 4 or c == 1)
    chains = next(c for c in range(min(chains, members), 0, -1) if members % c == 0)
    part = role.fresh("part")
    role.hoists_array(ctype, part, results * chains)

    def element(result: Index, k: Index) -> str:
        site = Site(m, _member(m, axis, result, k))
        text, valid = Expression(role, site).text(value), site.valid()
        return f"({role.lane(valid)} ? {text} : {_neutral(function, dtype)})" if valid else text

    with role.unrolled(results, var="r") as r:
        for c in range(chains):
            role.line(f"{part}[{r * chains + c}] = {element(r, Index.of(c))};")
        if members > chains:
            with role.unrolled_from(1, members // chains, chains) as k:
                for c in range(chains):
                    at = f"{part}[{r * chains + c}]"
                    role.line(f"{at} = {_combine(function, dtype, at, element(r, k + c))};")
        total = f"{part}[{r * chains}]"
        width = chains
        while width > 1:
            half = (width + 1) // 2
            for c in range(width - half):
                a, b = f"{part}[{r * chains + c}]", f"{part}[{r * chains + c + half}]"
                role.line(f"{a} = {_combine(function, dtype, a, b)};")
            width = half
        if node.attrs.get("scope") == "warp":
            with _butterfly(role, _shuffles(m, axis)) as lanes:
                role.line(f"{total} = {_combine(function, dtype, total, f'shuffle_xor({total}, {lanes})')};")
        if dtype in NARROW:
            role.line(f"{total} = round_{dtype}({total});")
    base = storage.base(dst.lead) + _slice_base(role, dst)
    with role.unrolled(results // storage.per, storage.per, var="r") as r:
        values = [f"{part}[{(r + k) * chains}]" for k in range(storage.per)]
        packed = dtype in NARROW or dtype in ("i8", "u8")
        text = f"pack_{dtype}({', '.join(values)})" if packed else values[0]
        role.line(f"{storage.name}[{(r + base).div(storage.per)}] = {text};")


def _slice_base(role: RoleContext, reg: Reg) -> int:
    """First register of a slice of a [R, 1] or [1, C] tile."""
    tile = role.storage(reg.name).type
    if not reg.rows and not reg.cols:
        return 0
    if tile.layout.kind != "frag":
        raise unsupported("A reduction into a slice.", "reduce into a whole tile")
    return 2 * (reg.rows[0] // (16 * role.warps)) if reg.rows else 2 * (reg.cols[0] // 8 if reg.cols else 0)


@op("argreduce")
def _argreduce(role: RoleContext, node: x.Op) -> None:
    """The best value and the lowest column that has it. Groups of four columns are compared by their maximum; only
    where one wins are its members kept, and which of the four it was is found once at the end. The minimum of floats is
    the maximum of their negatives; of integers it is not, so that they are compared as they are. NaN never wins."""
    dst, index, value = node.reg("dst"), node.reg("index"), node.expr("value")
    assert value is not None
    m = map_of(role, value_domain(node))
    largest = str(node.attrs["function"]).endswith("max")
    results, members = _groups(m, 1)
    dtype = value.dtype
    ctype = VALUE[dtype]
    sign = "-" if ctype == "float" and not largest else ""
    worst = _neutral("max" if largest or sign else "min", dtype)
    which = "" if largest or sign else "_least"
    group = 4 if members % 4 == 0 and ctype == "float" else 1
    best, column = role.fresh("best"), role.fresh("column")
    role.hoists_array("Best4" if group == 4 else ctype, best, results)
    role.hoists_array("int", column, results)

    def element(result: Index, k: Index) -> tuple[str, Index]:
        site = Site(m, _member(m, 1, result, k))
        text, valid = Expression(role, site).text(value), site.valid()
        if sign:
            text = f"-({text})"
        return (f"({role.lane(valid)} ? {text} : {worst})" if valid else text), site.at

    with role.unrolled(results, var="r") as r:
        b, c = f"{best}[{r}]", f"{column}[{r}]"
        if group == 4:
            role.line(f"{b} = best4({', '.join(element(r, Index.of(k))[0] for k in range(4))});")
            if members > 4:
                with role.unrolled_from(1, members // 4, 4) as k:
                    values = ", ".join(element(r, k + j)[0] for j in range(4))
                    role.line(f"keep({b}, {k.div(4)}, {values});")
            columns = [_column_of(role, m, _member(m, 1, r, Index.of(k))) for k in range(4)]
            stride = _stride(m)
            role.line(f"{c} = {stride} * int({b}.group) + which({b}, {', '.join(columns)});")
            total = f"{b}.top"
        else:
            first = element(r, Index())[0]
            role.line(f"{b} = {f'fmaxf({first}, {worst})' if ctype == 'float' else first};")
            role.line(f"{c} = {_column_of(role, m, _member(m, 1, r, Index()))};")
            if members > 1:
                with role.unrolled_from(1, members, 1) as k:
                    text, at = element(r, k)
                    role.line(f"keep{which}({b}, {c}, {text}, {_column_of(role, m, at)});")
            total = b
        if node.attrs.get("scope") == "warp":
            with _butterfly(role, _shuffles(m, 1)) as lanes:
                role.line(
                    f"keep_lowest{which}({total}, {c}, shuffle_xor({total}, {lanes}), shuffle_xor({c}, {lanes}));"
                )
    values_, indices = role.storage(dst.name), role.storage(index.name)
    v0, i0 = values_.base(dst.lead) + _slice_base(role, dst), indices.base(index.lead) + _slice_base(role, index)
    with role.unrolled(results, var="r") as r:
        total = f"{best}[{r}].top" if group == 4 else f"{best}[{r}]"
        text = f"{sign}{total}"
        if values_.word not in ("float", "int", "int64_t"):
            text = f"pack_{dtype}({text})"
        role.line(f"{values_.name}[{r + v0}] = {text};")
        role.line(f"{indices.name}[{r + i0}] = {column}[{r}];")


def _column_of(role: RoleContext, m: RegisterMap, at: Index) -> str:
    value = Site(m, at).axis("col")
    if isinstance(value, str):
        return role.lane(value)
    return Expression(role).sum(value.lane, value.reg).text


def _stride(m: RegisterMap) -> int:
    """Columns between a thread's groups of four registers of a row."""
    if m.layout.kind == "frag":
        return 16
    if m.layout.kind == "spread" and m.layout.vector < 4:
        return 4 // m.layout.vector * m.threads * m.layout.vector
    if m.layout.kind == "spread" and m.layout.vector > 4:
        raise unsupported("argmax of spread tiles of more than 4 elements a vector.", "use spread(4) or less")
    return 4 * m.threads if m.layout.kind == "spread" else 4
