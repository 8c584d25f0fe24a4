"""From a surface sequence to launches: each step's kernel is expanded, and its arguments are matched with its parameters.

Arguments stand in the order of the kernel's parameters; dtypes and numbers of axes must agree, and extents where both are
known. A keyword argument fixes a constant of the kernel. Constants that the caller chooses go to the file and to every
kernel that declares them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from cake.diagnostics import CakeError, Diagnostic, Findings, Label
from cake.expand import declarations as d
from cake.expand import expressions as ex
from cake.expand.constants import Value, bind_constants, declared
from cake.expand.context import Abort, KernelContext
from cake.expand.functions import load_rules
from cake.expand.kernel import Expansions
from cake.expand.values import Storage
from cake.facts import show
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.expr import Apply, Expr, Sym, integer, substitute
from cake.ir.sequences import Launch, Sequence, Workspace
from cake.ir.targets import TARGETS


def expand_sequence(
    file: s.File,
    sequence: s.Sequence,
    constants: Mapping[str, Value] | None = None,
    target: str | None = None,
    expansions: Expansions | None = None,
) -> tuple[Sequence | None, list[Diagnostic]]:
    """Check and expand a sequence and its kernels. Returns None with the findings if one of them blocks. ``expansions``: of the
    file, as far as they have been made."""
    load_rules()
    findings = Findings()
    try:
        result = _Expansion(file, sequence, findings, constants or {}, target, expansions or Expansions(file)).run()
    except Abort:
        return None, findings.items
    except CakeError as error:
        for diagnostic in error.diagnostics:
            findings.add(diagnostic)
        return None, findings.items
    return (None if findings.errors else result), findings.items


class _Expansion:
    def __init__(
        self,
        file: s.File,
        sequence: s.Sequence,
        findings: Findings,
        constants: Mapping[str, Value],
        target: str | None,
        expansions: Expansions,
    ) -> None:
        self.file, self.sequence, self.findings = file, sequence, findings
        self.expansions = expansions
        self.constants = constants
        self.kernels = {k.name: k for k in file.kernels}
        self.target = self._target(target)
        outline = s.Kernel(name=sequence.name, params=sequence.params, targets=(self.target,), span=sequence.span)
        self.ctx = KernelContext(file, outline, TARGETS[self.target], findings)
        self.temps: dict[str, Workspace] = {}
        self.written: set[str] = set()
        self.guards: dict[Expr | None, x.Condition] = {}

    def run(self) -> Sequence:
        """The sequence, complete if there are no findings."""
        ctx, sequence = self.ctx, self.sequence
        shared = {c.name for c in self.file.consts}
        self._known_constants(shared)
        bind_constants(ctx, {n: v for n, v in self.constants.items() if n in shared})
        d.bind_params(ctx)
        for t in sequence.temps:
            try:
                self._temp(t)
            except Abort:
                continue
        if not sequence.steps:
            ctx.refuse(
                "T018", f"sequence `{sequence.name}` has no step", sequence.span, help="call a kernel of the file"
            )
        steps = []
        for step in sequence.steps:
            try:
                steps.append(self._step(step))
            except Abort:
                self.written |= set(ctx.storages)  # what the step would have written is not known
        for tensor in ctx.tensors:
            if tensor.direction == "out" and tensor.name not in self.written:
                ctx.error(
                    "O501",
                    f"no step of `{sequence.name}` writes `{tensor.name}`",
                    tensor.span,
                    help="pass it to a kernel's output",
                )
        chosen = {n: v for step in steps for n, v in step.kernel.constants.items()}
        return Sequence(
            name=sequence.name,
            target=self.target,
            constants={**chosen, **ctx.constants},
            tensors=tuple(ctx.tensors),
            scalars=tuple(ctx.scalars),
            dims=tuple(ctx.dims.values()),
            guards=tuple(self.guards.values()),
            temps=tuple(self.temps.values()),
            steps=tuple(steps),
            span=sequence.span,
        )

    def _target(self, wanted: str | None) -> str:
        """A target that every kernel of the sequence is written for."""
        used = [self.kernels[step.name] for step in self.sequence.steps if step.name in self.kernels]
        common = [t for t in (used[0].targets if used else ()) if all(t in k.targets for k in used) and t in TARGETS]
        chosen = wanted or (common[0] if common else next(iter(TARGETS)) if not used else None)
        if chosen is None or (used and chosen not in common) or chosen not in TARGETS:
            self.findings.error(
                "T021",
                f"the kernels of `{self.sequence.name}` are not all written for {wanted or 'one target'}",
                self.sequence.span,
                facts=tuple(f"{k.name}: {', '.join(k.targets)}" for k in used),
            )
            raise Abort
        return chosen

    def _known_constants(self, shared: set[str]) -> None:
        known = shared | {
            c.name
            for step in self.sequence.steps
            if step.name in self.kernels
            for c in declared(self.file, self.kernels[step.name])
        }
        for name in self.constants:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                self.ctx.error(
                    "T001",
                    f"no kernel of `{self.sequence.name}` has a constant `{name}`",
                    self.sequence.span,
                    help=f"did you mean `{near[0]}`?" if near else f"they have {', '.join(sorted(known)) or 'none'}",
                )

    def _temp(self, t: s.Temp) -> None:
        ctx = self.ctx
        dtype = d.dtype_of(ctx, t.type)
        zero = False
        for a in t.attrs:
            if a.name != "zero" or a.args:
                ctx.refuse("T015", f"workspace has no attribute `{a.name}`", a.span, help="`zero` asks for zeros")
            zero = True
        if not t.type.dims:
            ctx.refuse(
                "T015", f"workspace `{t.name}` needs a shape", t.type.span, help=f"`{dtype}[1]` for a single element"
            )
        shape = tuple(ex.int_expr(ctx, e, "as an extent") for e in t.type.dims)
        storage = Storage(t.name, dtype, "global", shape, "inout", t.span)
        d.declare_name(ctx, t.name, storage, t.span)
        ctx.storages[t.name] = storage
        self.temps[t.name] = Workspace(name=t.name, dtype=dtype, shape=shape, zero=zero, span=t.span)
        if zero:
            self.written.add(t.name)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _step(self, step: s.Step) -> Launch:
        ctx = self.ctx
        kernel = self.kernels.get(step.name)
        if kernel is None:
            near = difflib.get_close_matches(step.name, list(self.kernels), n=1)
            ctx.refuse(
                "T004",
                f"there is no kernel `{step.name}` in the file",
                step.span,
                help=f"did you mean `{near[0]}`?" if near else f"it has {', '.join(self.kernels) or 'none'}",
            )
        expanded = self._expanded(step, kernel)
        present = {t.name for t in expanded.tensors} | {q.name for q in expanded.scalars}
        written = [p.name for p in kernel.params]
        derived = [t.name for t in expanded.tensors if t.name not in written]  # the counter of drawn tiles
        params = [name for name in written if name in present] + derived
        if len(step.args) != len(params):
            ctx.refuse(
                "T003",
                f"`{kernel.name}` takes {len(params)} arguments, not {len(step.args)}",
                step.span,
                help=f"{kernel.name}({', '.join(params)})",
            )
        tensors: dict[str, str] = {}
        scalars: dict[str, Expr] = {}
        for name, e in zip(params, step.args, strict=True):
            tensor = expanded.tensor(name)
            if tensor is None:
                want = next(q for q in expanded.scalars if q.name == name)
                scalars[name] = ex.adapt(ctx, ex.scalar(ctx, e, f"for `{name}` of `{kernel.name}`"), want.dtype, e.span)
            else:
                tensors[name] = self._tensor(kernel, tensor, e)
        self._distinct(step, expanded, tensors)
        dims = self._dims(step, expanded, tensors)
        self.written |= {tensors[t.name] for t in expanded.tensors if t.direction != "in"}
        for g in expanded.guards:
            if g.expr is not None:
                inner = substitute(g.expr, {**dims, **scalars})
                self.guards.setdefault(
                    inner, g.model_copy(update={"expr": inner, "text": f"{g.text} (of {kernel.name})"})
                )
        return Launch(kernel=expanded, tensors=tensors, scalars=scalars, dims=dims, span=step.span)

    def _expanded(self, step: s.Step, kernel: s.Kernel) -> x.Kernel:
        names = {c.name for c in declared(self.file, kernel)}
        chosen = {n: v for n, v in self.constants.items() if n in names}
        for kw in step.kwargs:
            if kw.name not in names:
                near = difflib.get_close_matches(kw.name, names, n=1)
                self.ctx.refuse(
                    "T001",
                    f"kernel `{kernel.name}` has no constant `{kw.name}`",
                    kw.span,
                    help=f"did you mean `{near[0]}`?" if near else f"it has {', '.join(sorted(names)) or 'none'}",
                )
            chosen[kw.name] = ex.constant(self.ctx, kw.value, f"`{kw.name}`")
        result, found = self.expansions.of(kernel, chosen, self.target)
        for diagnostic in found:
            self.findings.add(diagnostic)
        if result is None:
            raise Abort
        return result

    def _tensor(self, kernel: s.Kernel, want: x.Tensor, e: s.Expr) -> str:
        """The name of a tensor argument, after checking that it may stand there."""
        ctx = self.ctx
        storage = ctx.storages.get(e.name) if isinstance(e, s.Name) else None
        if storage is None:
            ex.typed(ctx, e)  # an unknown name is reported as such
            ctx.refuse(
                "T011", f"`{want.name}` of `{kernel.name}` is a tensor", e.span, help="pass a parameter or a `temp`"
            )
        name = storage.name
        if storage.dtype != want.dtype:
            ctx.refuse(
                "T005", f"`{name}` is {storage.dtype}, and `{want.name}` of `{kernel.name}` is {want.dtype}", e.span
            )
        if len(storage.extents) != len(want.shape):
            ctx.refuse(
                "T006",
                f"`{name}` has {len(storage.extents)} axes, and `{want.name}` of `{kernel.name}` has {len(want.shape)}",
                e.span,
            )
        if want.direction != "in" and storage.direction == "in":
            ctx.refuse(
                "O504",
                f"`{kernel.name}` writes `{want.name}`, and `{name}` is an input",
                e.span,
                help="declare it `out` or `inout`",
            )
        if want.direction != "out" and name not in self.written and (name in self.temps or storage.direction == "out"):
            ctx.refuse(
                "D209",
                f"`{kernel.name}` reads `{name}`, which no step before has written",
                e.span,
                labels=(Label(span=storage.span, text="declared here"),),
                help="declare it `zero` if it starts with zeros" if name in self.temps else "reorder the steps",
            )
        return name

    def _distinct(self, step: s.Step, kernel: x.Kernel, tensors: dict[str, str]) -> None:
        """What a kernel writes is passed to it once."""
        for t in kernel.tensors:
            others = [n for n, passed in tensors.items() if passed == tensors[t.name] and n != t.name]
            if t.direction != "in" and others:
                self.ctx.refuse(
                    "D203",
                    f"`{tensors[t.name]}` is passed twice to `{kernel.name}`, which writes it",
                    step.span,
                    help="use a `temp`",
                )

    def _dims(self, step: s.Step, kernel: x.Kernel, tensors: dict[str, str]) -> dict[str, Expr]:
        """The kernel's dims in terms of the sequence's, from the axes that determine them; the other axes must agree."""
        ctx = self.ctx
        dims: dict[str, Expr] = {}
        for dim in kernel.dims:
            extent = ctx.storages[tensors[dim.tensor]].extents[dim.axis]
            if dim.offset:
                extent = Apply(op="-", args=(extent, integer(dim.offset)), dtype="i32")
            if dim.scale != 1:
                extent = Apply(op="//", args=(extent, integer(dim.scale)), dtype="i32")
            dims[dim.name] = extent
        for t in kernel.tensors:
            for axis, (given, want) in enumerate(zip(ctx.storages[tensors[t.name]].extents, t.shape, strict=True)):
                needed = substitute(want, dims)
                equal = ctx.facts.prove(Apply(op="==", args=(given, needed), dtype="bool"))
                if equal is not True and (equal is False or not _may_agree(given, needed)):
                    ctx.refuse(
                        "T006",
                        f"axis {axis} of `{tensors[t.name]}` is {show(given)}, and `{kernel.name}` needs {show(needed)} there",
                        step.span,
                        facts=(f"`{t.name}` of `{kernel.name}` is [{', '.join(show(e) for e in t.shape)}]",),
                    )
        return dims


def _may_agree(a: Expr, b: Expr) -> bool:
    """Extents that are different expressions may still be equal: the launch decides. Two different dims are not."""
    return not (isinstance(a, Sym) and isinstance(b, Sym))
