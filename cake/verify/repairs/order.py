"""Order between warps, and between ordinary accesses and the async proxy: barriers and fences that are missing or misplaced."""

from __future__ import annotations

from collections.abc import Iterator

from cake.ir import surface as s
from cake.verify.repairs.finding import Finding, cures
from cake.verify.repairs.text import Repair, Statement, Text

WRITES = ("store", "stmatrix", "atomic.add", "atomic.max", "atomic.min", "signal")


@cures("D204", "D210", "D203", "D201", "D202", "D205", "D207", "M401", "M402", "D216", "F310")
def barriers(text: Text, found: Finding) -> Iterator[Repair]:
    """A barrier that is missing, or on the wrong side of an access."""
    users = found.statements(text)
    for sync in found.near(t for t in text.statements if t.function == "sync"):
        if sync.index + 1 < len(sync.block):
            yield text.move(sync, sync.index + 2, "meet after the access, not before it")
        if sync.index:
            yield text.move(sync, sync.index - 1, "meet before the access, not after it")
    for user in users:
        yield text.before(user, "sync()", "order the warps of the instance before the access")
        role = next((r for r in user.kernel.roles if r.name == user.role), None)
        if role is not None and role.instances is not None:
            yield text.before(user, f"sync({role.name})", "order the warps of the role before the access")
    for user in users:
        yield text.after(user, "sync()", "order the warps of the instance after the access")
        for around in user.outward():
            yield text.before(around, "sync()", "order the warps of the instance before the access")
            yield text.after(around, "sync()", "order the warps of the instance after the access")
            break


@cures("F301", "F302", "F303", "F310")
def fences(text: Text, found: Finding) -> Iterator[Repair]:
    """A fence by the threads that made the access: after it, and before they meet."""
    fence = [t for t in found.near(text.statements) if t.function.startswith("fence.")]
    for old in fence:
        for i in (old.index + 2, old.index - 1):
            if 0 <= i <= len(old.block):
                yield text.move(old, i, "fence after the access, in the threads that made it")
    writers = [t for t in found.statements(text) if t.function in WRITES or t.function.startswith("load")]
    for writer in (*reversed(found.statements(text)), *writers):
        yield text.after(writer, "fence.async()", "fence after the access, in the threads that made it")
    for meeting in found.near(t for t in text.statements if t.function == "sync"):
        before = text.of(meeting, meeting.index - 1) if meeting.index else None
        if before is not None and before.function in WRITES:
            yield text.before(meeting, "fence.async()", "fence after the access, in the threads that made it")
            yield from _exchanged(text, meeting, fence)


def _exchanged(text: Text, meeting: Statement, fence: list[Statement]) -> Iterator[Repair]:
    for old in fence:
        if old.block is meeting.block and old.index == meeting.index + 1:
            yield text.move(old, meeting.index, "fence before the threads meet")


@cures("M401", "M402", "M403", "M407", "P101", "P108", "F310", "D201")
def words(text: Text, found: Finding) -> Iterator[Repair]:
    """Words between CTAs: a signal or a wait at another place, or with the value of its counterpart."""
    signals = found.near(t for t in text.statements if t.function == "signal")
    waits = found.near(t for t in text.statements if t.function == "wait_until")
    for here in (*signals, *waits):
        if here.index:
            yield text.move(here, here.index - 1, f"`{here.function}` before what it orders")
        if here.index + 1 < len(here.block):
            yield text.move(here, here.index + 2, f"`{here.function}` after what it orders")
    for here in (*signals, *waits):
        assert here.call is not None
        if len(here.call.args) > 1:
            value = here.call.args[1]
            if isinstance(value, s.Binary) and value.op in "+-" and isinstance(value.right, s.Number):
                plain = text.lines[value.span.line - 1][value.left.span.column - 1 : value.left.span.end_column - 1]
                yield text.put(value, plain, "the value that the other side means")
    for here in signals:
        yield text.before(here, "sync()", "gather what the instance has written before the signal")
    for here in waits:
        yield text.after(here, "sync()", "let the whole instance see what the waiting thread saw")
