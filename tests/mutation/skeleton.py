"""The event skeleton of a launch: what every instance executes, with operands, regions and fills, but no names of places.

Two mutants with equal skeletons on every launch of the grid are one experiment, and one that has its parent's is no mutant
(docs/verification.md 2.3). Rings are not rotated here: cursors start at 0 in all parents, so a rotation shows as another slot.
"""

from __future__ import annotations

import hashlib

from cake.ir import expanded as x
from cake.verify.search.lower import Launch


def skeleton(launch: Launch) -> str:
    """A hash of all events of a launch."""
    kernel = launch.kernel
    h = hashlib.blake2b(digest_size=16)
    regions = [hashlib.blake2b(g.tobytes(), digest_size=8).hexdigest() for g in launch.regions.granules]
    counts = [(b.name, b.count, b.slots) for b in kernel.barriers]
    h.update(repr((counts, kernel.launch_registers, kernel.threads, kernel.cluster)).encode())
    for agent in launch.agents:
        h.update(f"|{agent.cta}.{agent.instance.name}.{agent.warps}.{agent.half}".encode())
        for step, touched in zip(agent.program, agent.touched, strict=True):
            what = (
                step.kind,
                step.barriers,
                step.phase if step.kind == "wait" else 0,
                step.meant,
                step.form,
                step.weight * agent.threads(step),
                step.bytes,
                step.sem,
                step.scope,
                step.ident,
                step.count,
                step.queue,
                step.keep,
                step.read,
                step.what,
                step.width,
                step.flag,
                step.value,
                [(t.mode, t.asynchronous, t.tag, regions[r]) for t, r in touched],
            )
            registers = step.node.operands if isinstance(step.node, x.Op) and step.node.op == "wgmma" else ()
            h.update(repr((what, str(registers) if registers else "")).encode())
    return h.hexdigest()
