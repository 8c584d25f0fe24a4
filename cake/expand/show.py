"""The text of ``cake expand``: an expanded kernel for a reader, every derived line with its reason.

The text is for people, the kernel's JSON for programs. Everything stands in it: nothing is recomputed here that the
kernel does not say, except sums an expert wants to see beside a number (where a count or a limit comes from). What the
program's lines say is in :mod:`cake.expand.show_program`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cake.diagnostics import Span
from cake.expand.show_program import Lines, statements, walk
from cake.facts.show import show
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.ir.sequences import Sequence as Steps
from cake.ir.targets import TARGETS

COMMENT = 76
"""The column where comments start, where the line leaves room."""


@dataclass
class _Page:
    """Lines of text with an optional comment each."""

    lines: list[str] = field(default_factory=list)

    def add(self, text: str, comment: str = "", indent: int = 0) -> None:
        text = " " * indent + text
        self.lines.append(f"{text:<{COMMENT}}  # {comment}" if comment else text)

    def title(self, text: str, comment: str = "") -> None:
        self.lines.append("")
        self.add(text, comment)


def show_kernel(kernel: x.Kernel) -> str:
    """The whole kernel as text; the same kernel always gives the same text."""
    page = _Page()
    _head(page, kernel)
    _warps(page, kernel)
    _barriers(page, kernel)
    _shared(page, kernel)
    _maps(page, kernel)
    _programs(page, kernel)
    return "\n".join(page.lines) + "\n"


def _line(span: Span | None) -> str:
    return f"line {span.line}" if span is not None else ""


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# ---- what the launch is ---------------------------------------------------------------------------------------------


def _head(page: _Page, k: x.Kernel) -> None:
    page.add(f"kernel {k.name} for {k.target}", _line(k.span))
    if k.constants:
        page.add("constants " + ", ".join(f"{n}={v}" for n, v in k.constants.items()), indent=2)
    for t in k.tensors:
        direction = "" if t.direction == "in" else t.direction + " "
        shape = ", ".join(show(e) for e in t.shape)
        strided = " strided" if t.strided else ""
        page.add(f"{direction}{t.name}: {t.dtype}[{shape}]{strided}", indent=2)
    for s in k.scalars:
        page.add(f"{s.name}: {s.dtype}", indent=2)
    for d in k.dims:
        page.add(f"dim {d.name}", f"extent {d.axis} of {d.tensor}{_affine(d)}", 2)
    for g in k.guards:
        page.add(f"guard {g.text}", _join("checked on the host", _line(g.span)), 2)
    for a in k.assumes:
        page.add(f"assume {a.text}", _join("of the data; the simulator checks it", _line(a.span)), 2)
    page.add(f"tiles {k.schedule}: {show(k.positions)} positions", indent=2)
    page.add(f"grid {show(k.grid)}{_cluster(k)}", _grid(k), 2)


def _affine(d: x.Dim) -> str:
    if d.scale == 1 and d.offset == 0:
        return ""
    scaled = f"{d.scale} * {d.name}" if d.scale != 1 else d.name
    return f" = {scaled} {'+' if d.offset > 0 else '-'} {abs(d.offset)}" if d.offset else f" = {scaled}"


def _cluster(k: x.Kernel) -> str:
    return f" clusters of {k.cluster} CTAs" if k.cluster > 1 else ""


def _grid(k: x.Kernel) -> str:
    unit = "cluster" if k.cluster > 1 else "CTA"
    if k.schedule == "persistent":
        return f"persistent: no more {unit}s than are resident together"
    return f"once: a {unit} for each position"


def _warps(page: _Page, k: x.Kernel) -> None:
    page.title("warps")
    for r in k.roles:
        for w in range(r.instances):
            first = r.first_warp + w * r.warps
            where = f"{first}" if r.warps == 1 else f"{first}-{first + r.warps - 1}"
            name = f"{r.name}[{w}]" if r.instances > 1 else r.name
            budget = f"  {r.registers} registers" if r.registers is not None else ""
            solo = "only its elected lane runs the program" if r.solo and r.warps == 1 else ""
            if r.solo and r.warps > 1:
                solo = "only the elected lane of its first warp runs the program"
            page.add(f"{where:<6} {name}{budget}", _join(solo, _line(r.span)), 2)
    used = {w for r in k.roles for w in range(r.first_warp, r.first_warp + r.warps * r.instances)}
    gaps = [w for w in range(k.threads // 32) if w not in used]
    if gaps:
        page.add(f"{', '.join(map(str, gaps)):<6} unused", "roles of 4 warps start at a multiple of 4", 2)
    page.add(f"{k.threads} threads", indent=2)
    if k.launch_registers is not None:
        page.add(f"maxnreg {k.launch_registers}", f"registers at launch: {_pool(k)}", 2)


def _pool(k: x.Kernel) -> str:
    target = TARGETS.get(k.target)
    total = target.registers_per_sm if target else 65536
    asked = [r for r in k.roles if r.registers is not None]
    if asked and len({r.registers for r in asked}) == 1:
        return f"every role asks for {asked[0].registers}; {total // (k.threads * (k.launch_registers or 1))} CTAs fit an SM"
    text = f"floor8({total} / {k.threads}), at most 255"
    if asked:
        need = sum(r.registers * r.threads * r.instances for r in asked if r.registers is not None)
        text += f"; roles take {need} of {k.launch_registers * k.threads if k.launch_registers else 0}"
    return text


# ---- barriers -------------------------------------------------------------------------------------------------------


def _barriers(page: _Page, k: x.Kernel) -> None:
    if k.barriers:
        page.title("mbarriers")
    for b in k.barriers:
        slots = f"[{b.slots}]" if b.slots > 1 else ""
        page.add(f"{b.name}{slots} count {b.count} @{b.offset}", _join(_count(k, b), _line(b.span)), 2)
    if k.named:
        page.title("named barriers")
    for n in k.named:
        ids = f"{n.id}" if n.size == 1 else f"{n.id}-{n.id + n.size - 1}"
        page.add(f"{ids:<6} {n.name}, {n.threads} threads", _join(_named(n), _line(n.span)), 2)


def _count(k: x.Kernel, b: x.Barrier) -> str:
    """Who arrives, and the sum where it is the count: what the program says, not what it should say."""
    parts, total = [], 0
    for r in k.roles:
        arrivals = {s.executor: s for s in walk(r.body) if isinstance(s, x.Arrive) and s.barrier == b.name}
        arrivals = {e: s for e, s in arrivals.items() if s.form != "expect"}
        for executor, s in arrivals.items():
            each = {"one": 1, "warp": r.warps, "lanes": r.threads}[executor] * s.weight
            peers = len(s.peers) if s.peers else 1
            total += each * r.instances * peers
            unit = {"one": "", "warp": "warps", "lanes": "threads"}[executor]
            times = [str(n) for n in (r.instances, each) if n > 1] or ["1"]
            at = f", at {peers} CTAs" if peers > 1 else ""
            parts.append(f"{' x '.join(times)} {unit + ' of ' if unit else 'by '}{r.name}{at}")
    if not parts:
        return "arrivals of copies alone"
    return "arrivals: " + " + ".join(parts) + ("" if total == b.count else f", {total} in all")


def _named(n: x.NamedBarrier) -> str:
    if n.name == "cta":
        return "all warps, after the barriers are initialised"
    if n.per_instance:
        return f"instance w uses {n.id} + w" if n.size > 1 else "the instance's warps"
    return "all instances of the role" if n.size == 1 else "a turn: one id an instance"


# ---- memory ---------------------------------------------------------------------------------------------------------


def _shared(page: _Page, k: x.Kernel) -> None:
    if not k.buffers and not k.barriers:
        return
    target = TARGETS.get(k.target)
    room = f"{target.shared_bytes - k.shared_bytes} of {target.shared_bytes} left on {k.target}" if target else ""
    page.title(f"shared memory, {k.shared_bytes} bytes", room)
    places: list[tuple[int, str, str]] = []
    for b in k.buffers:
        count = f"[{b.slots}]" if b.slots > 1 else ""
        owner = f" x {b.instances} instances" if b.instances > 1 else ""
        attributes = f" swizzle({b.swizzle})" if b.swizzle else f" pad({b.pad})" if b.pad else ""
        attributes += f" alias({b.alias})" if b.alias else ""
        text = f"{b.name}{count}{owner}: {b.dtype}[{', '.join(map(str, b.shape))}]{attributes}"
        sizes = _sizes(b)
        places.append((b.offset, text, _join(sizes, _panels(b), _line(b.span))))
    for m in k.barriers:
        slots = f"[{m.slots}]" if m.slots > 1 else ""
        places.append((m.offset, f"{m.name}{slots}: mbarrier", f"{m.slots} x 8 bytes" if m.slots > 1 else "8 bytes"))
    for offset, text, note in sorted(places, key=lambda p: p[0]):
        page.add(f"@{offset:<7} {text}", note, 2)


def _sizes(b: x.Buffer) -> str:
    if b.instances > 1 and b.slots > 1:
        return f"{b.instances} x {b.slots} x {b.slot_bytes} bytes"
    if b.instances > 1:
        return f"{b.instances} x {b.instance_bytes} bytes"
    return f"{b.slots} x {b.slot_bytes} bytes" if b.slots > 1 else f"{b.slot_bytes} bytes"


def _panels(b: x.Buffer) -> str:
    if not b.swizzle:
        return ""
    row = b.shape[-1] * DTYPES[b.dtype].bytes
    return f"{row // b.swizzle} panels of {b.swizzle} bytes a row" if row > b.swizzle else ""


def _maps(page: _Page, k: x.Kernel) -> None:
    if k.maps:
        page.title("tensor maps")
    for m in k.maps:
        tensor = k.tensor(m.tensor)
        size = DTYPES[tensor.dtype].bytes if tensor else 0
        count = 1
        for extent in m.box:
            count *= extent
        swizzle = f", swizzle {m.swizzle}" if m.swizzle else ""
        box = ", ".join(map(str, m.box))
        page.add(f"{m.name}: {m.tensor}, box [{box}]{swizzle}", f"{count * size} bytes; zeros outside {m.tensor}", 2)


# ---- programs -------------------------------------------------------------------------------------------------------


def _programs(page: _Page, k: x.Kernel) -> None:
    if any(r.cursors for r in k.roles):
        page.title("cursors count stages since the start: stage c of a ring of S is slot c % S in phase c // S;")
        page.add("phase n below is that of the cursor in the slot")
    if k.entry:
        page.title("entry")
        _body(page, statements(k, None, k.entry), 1)
    for r in k.roles:
        page.title(f"{r.name}[{r.var or 'w'}]:" if r.instances > 1 else f"{r.name}:", _line(r.span))
        for name, slots in r.cursors.items():
            page.add(f"cursor {name} = 0", f"walks {_plural(slots, 'slot')}", 2)
        for name, t in r.tiles.items():
            page.add(f"tile {name}: {t}", indent=2)
        _body(page, statements(k, r, r.body), 1)


def _body(page: _Page, lines: Iterator[Lines] | Sequence[Lines], depth: int) -> None:
    for line in lines:
        page.add(line.text, _join(line.reason, _line(line.span)), 2 * (depth + line.depth))


def show_sequence(sequence: Steps) -> str:
    """The launches of a sequence and its workspace, then each kernel."""
    lines = [f"sequence {sequence.name} for {sequence.target}"]
    for w in sequence.temps:
        shape = ", ".join(show(e) for e in w.shape)
        lines.append(f"  workspace {w.name}: {w.dtype}[{shape}]{' zero' if w.zero else ''}")
    for step in sequence.steps:
        passed = {**step.tensors, **{n: show(e) for n, e in step.scalars.items()}}
        lines.append(f"  launch {step.kernel.name}({', '.join(f'{n}={v}' for n, v in passed.items())})")
    return "\n\n".join(["\n".join(lines), *(show_kernel(step.kernel) for step in sequence.steps)])
