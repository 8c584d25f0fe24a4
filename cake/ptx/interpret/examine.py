"""A launch under several schedules: each must end without a finding, and all must do the same.

Under the same code and inputs the phases that waits find, and the writes that reads find, may not depend on timing;
where they do, one of the schedules is wrong, whichever it is.
"""

from __future__ import annotations

from dataclasses import replace

from cake.ptx.interpret import across, copies, memory, products, synchronise
from cake.ptx.interpret.handlers import Choice, Handler
from cake.ptx.interpret.launch import Launch
from cake.ptx.interpret.machine import Machine
from cake.ptx.interpret.outcome import Finding, Outcome, Run, Undecided
from cake.ptx.interpret.program import Program, decode
from cake.ptx.interpret.schedules import adversaries, plain
from cake.ptx.reader import PtxError, read

_HANDLERS: dict[str, Handler] = {
    **synchronise.HANDLERS,
    **across.HANDLERS,
    **memory.HANDLERS,
    **copies.HANDLERS,
    **products.HANDLERS,
}


def handler(opcode: str) -> Handler | None:
    """Who executes an opcode: the longest name that it begins with."""
    parts = opcode.split(".")
    for n in range(len(parts), 0, -1):
        found = _HANDLERS.get(".".join(parts[:n]))
        if found is not None:
            return found
    return None


def program(ptx: str) -> Program:
    """The one entry of a module. Raises Undecided where it is not one or has an instruction that is not followed."""
    try:
        functions = read(ptx)
    except PtxError as e:
        raise Undecided(str(e)) from e
    if len(functions) != 1:
        raise Undecided(f"{len(functions)} entries")
    return decode(functions[0], handler)


def run(code: Program, launch: Launch, schedule: Choice) -> Run:
    """One schedule."""
    return Machine(code, launch, schedule).run()


def examine(ptx: str, launch: Launch, *, seeds: int = 4, warps: int = 2) -> Outcome:
    """All schedules, up to the first that shows a victim. ``warps``: how many of those that run the same code
    are starved and favoured; ``seeds``: random schedules."""
    try:
        code = program(ptx)
    except Undecided as u:
        return Outcome("unknown", why=str(u))
    first = run(code, launch, plain()[0])
    policy: Run | None = None
    steps = count = 0
    for schedule in (*plain(), *adversaries(_representatives(first, warps), seeds)):
        found = run(code, launch, schedule) if count else first
        steps, count = steps + found.steps, count + 1
        if any(not f.policy for f in found.findings):
            return Outcome("broken", found.findings, schedule.name, "", steps, count)
        if found.undecided:
            return Outcome("unknown", found.findings, schedule.name, found.undecided, steps, count)
        if found.findings and policy is None:
            policy = found
        if (different := _difference(code, first, found)) is not None:
            both = f"{first.schedule} and {schedule.name}"
            if not different.policy:
                return Outcome("broken", (different,), both, "", steps, count)
            policy = policy or replace(found, schedule=both, findings=(different,))
    if policy is not None:
        return Outcome("policy", policy.findings, policy.schedule, "", steps, count)
    return Outcome("clean", steps=steps, schedules=count)


def _representatives(done: Run, count: int) -> list[tuple[int, int]]:
    """Of the warps whose waits and reads are of the same places, some: the first and the last at least."""
    alike: dict[object, list[tuple[int, int]]] = {}
    places: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for (cta, warp, _), entries in sorted(done.log.items()):
        places.setdefault((cta, warp), []).append(tuple(dict.fromkeys(at for at, _ in entries)))
    for who, where in places.items():
        alike.setdefault(tuple(where), []).append(who)
    out: list[tuple[int, int]] = []
    for group in alike.values():
        out += dict.fromkeys(group[i * (len(group) - 1) // max(count - 1, 1)] for i in range(count))
    return sorted(set(out))


def _difference(code: Program, one: Run, other: Run) -> Finding | None:
    """Where two runs part. A meeting that depends on timing and changes nothing that is read is a broken contract
    without a victim."""
    if one.atomics or other.atomics:
        return None
    mixed = None
    for strand in sorted(one.log.keys() | other.log.keys()):
        a, b = one.log.get(strand, []), other.log.get(strand, [])
        if a == b:
            continue
        reads = [[e for e in log if isinstance(e[1], frozenset)] for log in (a, b)]
        victim = reads[0] != reads[1] or [at for at, _ in a] != [at for at, _ in b]
        x, y = next((x, y) for x, y in zip(*(reads if reads[0] != reads[1] else (a, b)), strict=False) if x != y)
        i = code.steps[x[0]].instruction
        text = f"what warp {strand[1]} of CTA {strand[0]} finds depends on the schedule: {_text(x[1])} or {_text(y[1])}"
        finding = Finding("schedule" if victim else "mixed", text, i.line if i is not None else 0, policy=not victim)
        if victim:
            return finding
        mixed = mixed or finding
    return mixed


def _text(what: object) -> str:
    if isinstance(what, frozenset):
        return "writes of " + (", ".join(sorted(map(str, what))) or "nobody")
    return " ".join(map(str, what)) if isinstance(what, tuple) else str(what)
