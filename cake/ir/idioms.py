"""Habits from Python and CUDA that show only in the shape of an expression, not in its tokens.

Only forms that are wrong whatever the types are reported here; what needs types is the expander's.
"""

from __future__ import annotations

import re

from cake.diagnostics import Edit, Findings, Fix, Span
from cake.ir import surface as s
from cake.ir.printer import format_expr

_REDUCTIONS = frozenset({"sum", "max", "min", "argmax", "argmin"})
_ELECT = frozenset({"elect", "elect_one", "elect_sync", "elect_one_sync", "is_elected"})
_THREADS = frozenset(
    {
        "threadIdx",
        "blockIdx",
        "blockDim",
        "gridDim",
        "program_id",
        "thread_idx",
        "lane_id",
        "warp_id",
        "laneid",
        "warpid",
    }
)
_METHODS = frozenset(
    {"sum", "max", "min", "argmax", "argmin", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "abs", "tanh"}
)
_CASTS = frozenset({"to", "astype", "cast", "float", "half", "bfloat16"})
_PHASE = re.compile(r"(?:^|_)(?:phase|parity)(?:s|_bit|_bits)?(?:$|_|\d)")

_PROTOCOL: dict[str, str] = {
    name: help
    for names, help in (
        (
            "acquire try_acquire producer_acquire producer_try_acquire reserve",
            "`with p.fill() as s:` waits for the next free stage",
        ),
        ("commit producer_commit producer_tail", "leaving the block of `with p.fill() as s:` completes the fill"),
        ("consumer_wait consumer_try_wait try_wait test_wait", "`s = p.wait()` waits for the next full stage"),
        ("consumer_release", "`p.release()` gives the stages back"),
        (
            "arrive expect_tx arrive_expect_tx arrive_and_expect_tx mbarrier_arrive mbarrier_wait mbarrier_init",
            "barriers, counts and bytes follow from the endpoints of a pipeline",
        ),
        (
            "__syncthreads syncthreads sync_threads __syncwarp syncwarp",
            "`sync()` orders the warps of an instance, `sync(role)` those of a role",
        ),
        ("advance", "a pipeline moves its own cursor; `p.skip(n)` passes over stages of other instances"),
    )
    for name in names.split()
}


def check_idioms(file: s.File, findings: Findings) -> None:
    """Report the habits in a file."""
    for const in file.consts:
        _Checker(findings, frozenset(), frozenset()).walk(const)
    for kernel in file.kernels:
        tensors = {param.name for param in kernel.params if param.type.dims} | {smem.name for smem in kernel.smems}
        pipelines = frozenset(pipeline.name for pipeline in kernel.pipelines)
        for part in s.children(kernel):
            local = _local_names(part) if isinstance(part, s.Do) else set()
            _Checker(findings, frozenset(tensors - local), pipelines).walk(part)
    for sequence in file.sequences:
        _Checker(findings, frozenset(), frozenset()).walk(sequence)


def _local_names(do: s.Do) -> set[str]:
    names: set[str] = set()
    for node in s.walk(do):
        match node:
            case s.Assign():
                names.update(node.targets)
            case s.Declare():
                names.add(node.name)
            case s.For():
                names.add(node.var)
            case s.With(name=str() as name):
                names.add(name)
    return names


class _Checker:
    """Checks one declaration or program."""

    def __init__(self, findings: Findings, tensors: frozenset[str], pipelines: frozenset[str]) -> None:
        self.findings = findings
        self.tensors = tensors
        self.pipelines = pipelines
        self.tiles: set[str] = set()
        self.stages: set[str] = set()

    def walk(self, root: s.Node) -> None:
        nodes = list(s.walk(root))
        for node in nodes:
            match node:
                case s.Declare() if node.type.dims:
                    self.tiles.add(node.name)
                case s.With(name=str() as name):
                    self.stages.add(name)
                case s.Assign(targets=(name,), value=s.Call(func=s.Attribute(name="wait"))):
                    self.stages.add(name)
        subscripts = {id(sub) for node in nodes if isinstance(node, s.Index) for sub in node.subs}
        for node in nodes:
            match node:
                case s.Index():
                    self.index(node)
                case s.Name(name="None") if id(node) not in subscripts:
                    self.error("S117", "Cake has no `None`", node.span, "leave the argument out, or use a number")
                case s.Name() if node.name in _THREADS:
                    self.thread(node.name, node.span)
                case s.Call():
                    self.call(node)
                case s.Assign() | s.Declare():
                    for name in node.targets if isinstance(node, s.Assign) else (node.name,):
                        if _PHASE.search(name):
                            self.phase(f"`{name}` is kept by Cake", node.span)

    def error(self, code: str, message: str, span: Span, help: str, fix: Fix | None = None) -> None:
        self.findings.error(code, message, span, help=help, fix=fix)

    # -- single forms

    def index(self, node: s.Index) -> None:
        if not any(isinstance(sub, s.Name) and sub.name == "None" for sub in node.subs):
            return
        whole = all(
            isinstance(sub, s.Name) or (isinstance(sub, s.Slice) and not (sub.lo or sub.hi or sub.step))
            for sub in node.subs
        )
        fix = _replace(node.span, format_expr(node.base), "leave the subscript out") if whole else None
        self.error(
            "S103",
            "axes are not inserted by `None`",
            node.span,
            "a reduction keeps its axis with size 1, and size-1 axes broadcast",
            fix,
        )

    def phase(self, message: str, span: Span) -> None:
        self.error(
            "S111",
            f"phases and parities are not written: {message}",
            span,
            "`p.wait()` waits for the next stage, whichever it is",
        )

    def thread(self, name: str, span: Span) -> None:
        self.error(
            "S126",
            f"there is no per-thread code, so no `{name}`",
            span,
            "`do role as w:` names the instance; `rows(x)`, `cols(x)` and `lin(x)` number the elements of a tile",
        )

    def call(self, node: s.Call) -> None:
        name = node.func.name if isinstance(node.func, s.Name | s.Attribute) else ""
        method = isinstance(node.func, s.Attribute)
        for keyword in node.kwargs:
            if keyword.name in ("phase", "parity"):
                self.phase(f"`{keyword.name}=` is not an argument", keyword.span)
        if name in _ELECT:
            self.error(
                "S109",
                "threads are elected by Cake",
                node.span,
                "write the operation alone: `tma.load` and the like are done by one thread",
            )
        elif name in _PROTOCOL:
            self.error(
                "S110", f"the protocol of a pipeline is derived; `{name}` is not written", node.span, _PROTOCOL[name]
            )
        elif method and name == "program_id":
            self.thread(name, node.span)
        elif method and name == "wait" and node.args and _base_name(node.func) in self.pipelines:
            self.phase("the wait of a pipeline has no argument", node.span)
        elif method and (name in _METHODS or name in _CASTS) and _base_name(node.func) != "atomic":
            self.method(node, name)
        elif not method and name in _REDUCTIONS:
            self.reduction(node, name)
        elif not method and name == "load" and len(node.args) == 1:
            self.load(node, node.args[0])

    def method(self, node: s.Call, name: str) -> None:
        assert isinstance(node.func, s.Attribute)
        base = format_expr(node.func.base)
        if name in _CASTS:
            dtype = {"float": "f32", "half": "f16", "bfloat16": "bf16"}.get(name)
            if dtype is None and len(node.args) == 1 and not node.kwargs and isinstance(node.args[0], s.Name):
                dtype = node.args[0].name
            fix = _replace(node.span, f"{dtype}({base})", "cast") if dtype else None
            self.error("S127", "a cast is a call of the dtype", node.span, "write `f32(x)`, `bf16(x)`", fix)
            return
        call = s.Call(func=s.Name(name=name), args=(node.func.base, *node.args), kwargs=node.kwargs)
        self.error(
            "S127",
            f"`{name}` is not a method of tiles",
            node.span,
            "operations on tiles are calls",
            _replace(node.span, format_expr(call), "call it"),
        )

    def reduction(self, node: s.Call, name: str) -> None:
        for keyword in node.kwargs:
            if keyword.name in ("dim", "dims", "axes"):
                start = keyword.span
                edit = Edit(
                    span=start.model_copy(
                        update={"end_line": start.line, "end_column": start.column + len(keyword.name)}
                    ),
                    replacement="axis",
                )
                fix = Fix(message="name the axis", edits=(edit,))
                self.error("S106", f"the axis of `{name}` is given by `axis=`", keyword.span, "write `axis=1`", fix)
            elif keyword.name in ("keepdim", "keepdims"):
                self.error(
                    "S106", "a reduction always keeps its axis with size 1", keyword.span, f"leave `{keyword.name}` out"
                )
        if len(node.args) != 2 or any(keyword.name == "axis" for keyword in node.kwargs):
            return
        axis = node.args[1]
        value = axis.operand if isinstance(axis, s.Unary) and axis.op == "neg" else axis
        literal = isinstance(value, s.Number) and value.text in ("0", "1")
        certain = name not in ("max", "min") or (
            literal and isinstance(value, s.Number) and value.text == "1" and self.is_tile(node.args[0])
        )
        if certain:
            # Tiles have two axes, so the last one is 1.
            text = "axis=" + ("1" if value is not axis else format_expr(axis))
            self.error(
                "S106",
                f"the axis of `{name}` is given by `axis=`",
                node.span,
                "write `axis=1` for one value a row"
                + ("; two tiles or numbers are compared element by element" if name in ("max", "min") else ""),
                _replace(axis.span, text, "name the axis") if literal else None,
            )

    def is_tile(self, node: s.Node) -> bool:
        match node:
            case s.Name():
                return node.name in self.tiles
            case s.Call(func=s.Name(name="f32" | "bf16" | "f16" | "exp2" | "exp" | "abs"), args=(arg,)):
                return self.is_tile(arg)
        return False

    def load(self, node: s.Call, ref: s.Node) -> None:
        match ref:
            case s.Name() if ref.name in self.tensors:
                what = ref.name
            case s.Attribute(base=s.Name()) if ref.base.name in self.stages:  # type: ignore[union-attr]
                what = format_expr(ref)
            case _:
                return
        self.error(
            "S107",
            f"`load({what})` says nothing about the layout of its result",
            node.span,
            f"give indices: `load({what}[rows(x), cols(x)])` has the layout of x; scalars take one integer an axis",
        )


def _base_name(func: s.Node) -> str | None:
    return func.base.name if isinstance(func, s.Attribute) and isinstance(func.base, s.Name) else None


def _replace(span: Span, text: str, message: str) -> Fix:
    return Fix(message=message, edits=(Edit(span=span, replacement=text),))
