"""track: a running extremum.

The columns of a row come in groups. One comparison, of a group's extremum with the best so far, decides for the whole group;
only where it wins are its members copied, and which of them it was is found once, at the end of the statement. The copies
are predicated additions of -0.0: they run on the FMA pipe, which comparing leaves idle, while moves and selects would go to
the ALU, which it saturates.
"""

from __future__ import annotations

from cake.codegen.context import RoleContext
from cake.codegen.elementwise import SUM, Expression
from cake.codegen.index import Index
from cake.codegen.ops.registers import _groups, _member
from cake.codegen.ops.registry import op
from cake.codegen.ops.words import map_of, value_domain
from cake.codegen.tiles import Site
from cake.ir import expanded as x

_NAMES = "abcdefgh"


@op("track")
def _track(role: RoleContext, node: x.Op) -> None:
    best, column = node.reg("best"), node.reg("column")
    value, first = node.expr("value"), node.expr("first")
    assert value is not None and first is not None
    m = map_of(role, value_domain(node))
    largest, group = str(node.attrs["function"]) == "argmax", int(node.attrs["group"])
    results, members = _groups(m, 1)
    tops, columns = role.storage(best.name), role.storage(column.name)
    suffix = f"{'argmax' if largest else 'argmin'}{group}"
    struct = role.unit.function(f"Group{group}", _struct(group))
    none = role.unit.function(f"no_group{group}", _none(group))
    keep = role.unit.function(f"keep_{suffix}", _keep(largest, group))
    column_of = role.unit.function(f"column_of{group}", _column_of(group))
    found = role.fresh("found")
    # The first column of this thread: what the lane adds is the same for all of its columns.
    lane = role.hoist("int", "first", f"{Expression(role).text(first, SUM)} + {role.need('frag_col')}")
    role.hoists_array(struct, found, results)
    with role.unrolled(results, var="r") as r:
        at = f"{found}[{r}]"
        role.line(f"{at} = {none}();")
        with role.unrolled(members // group, group, var="k") as k:
            site = [Site(m, _member(m, 1, r, k + j)) for j in range(group)]
            values = ", ".join(Expression(role, s).text(value) for s in site)
            role.line(f"{keep}({tops.name}[{r}], {at}, {_column(k)}, {values});")
        role.line(f"{columns.name}[{r}] = {column_of}({tops.name}[{r}], {at}, {lane}, {columns.name}[{r}]);")


def _column(k: Index) -> str:
    """The part of the column of a row's member ``k`` that the register decides (frag: pairs, eight columns apart)."""
    return str(k.div(2) * 8 + k.mod(2))


def _struct(group: int) -> str:
    kept = ", ".join(_NAMES[: group - 1])
    return (
        f"// The group of {group} that won last: where it starts, and the members by which to find the winner (the last is left).\n"
        f"struct Group{group} {{\n    int start;\n" + (f"    float {kept};\n" if kept else "") + "};"
    )


def _keep(largest: bool, group: int) -> str:
    """Keep a group whose extremum is strictly better than the best so far."""
    names = list(_NAMES[:group])
    extremum = names[:]
    f = "fmaxf" if largest else "fminf"
    while len(extremum) > 1:
        extremum = [f"{f}({a}, {b})" for a, b in zip(extremum[::2], extremum[1::2], strict=True)]
    out = ["best", "found.start", *(f"found.{n}" for n in names[:-1])]
    ins = ["extremum", "start", *names[:-1], "negative_zero()"]
    n = len(out)
    compare = "gt" if largest else "lt"
    lines = [
        f"@p mov.b32 %{i}, %{n + i};" if o == "found.start" else f"@p add.f32 %{i}, %{n + i}, %{2 * n};"
        for i, o in enumerate(out)
    ]
    moves = "".join(f'        "{line}\\n"\n' for line in lines)
    arguments = ", ".join(f"float {v}" for v in names)
    outs = ", ".join(f'"+{"r" if o == "found.start" else "f"}"({o})' for o in out)
    inputs = ", ".join(f'"{"r" if i == "start" else "f"}"({i})' for i in ins)
    return (
        f"__device__ __forceinline__ void keep_{'argmax' if largest else 'argmin'}{group}"
        f"(float &best, Group{group} &found, int start, {arguments})\n{{\n"
        f"    const float extremum = {extremum[0]};\n"
        '    asm("{\\n"\n        ".reg .pred p;\\n"\n'
        f'        "setp.{compare}.f32 p, %{n}, %0;\\n"\n{moves}        "}}\\n"\n'
        f"        : {outs}\n        : {inputs});\n}}"
    )


def _none(group: int) -> str:
    """Before the first group: no group has won yet."""
    values = ", ".join(["-1", *["0.0f"] * (group - 1)])
    return f"__device__ __forceinline__ Group{group} no_group{group}()\n{{\n    return {{{values}}};\n}}"


def _column_of(group: int) -> str:
    """The column of the winner, the first member that equals it; the column of before where no group has won."""
    offsets = [_column(Index.of(j)) for j in range(group)]
    text = "".join(f"found.{n} == best ? {o} : " for n, o in zip(_NAMES[: group - 1], offsets, strict=False))
    inside = f" + ({text}{offsets[-1]})" if group > 1 else ""
    return (
        f"__device__ __forceinline__ int column_of{group}"
        f"(float best, const Group{group} &found, int first, int before)\n{{\n"
        f"    return found.start < 0 ? before : first + found.start{inside};\n}}"
    )
