"""D8, the static part: instructions that whole warps execute together are not left to an elected lane (C601).

``wgmma.fence``, ``wgmma.commit_group``, ``wgmma.wait_group`` and the tensor-core and matrix moves are ``.sync.aligned``: all threads
of the warp must execute the same one (PTX ISA 9.7.15.6, 9.7.14.5). A wait by the elected lane alone does not end the operation for
its siblings, whatever barrier they meet at afterwards.
"""

from __future__ import annotations

from cake.diagnostics import Diagnostic
from cake.ir import expanded as x
from cake.ir.ops import OPS
from cake.machine.order.report import finding
from cake.machine.program import statements


def divergent(kernel: x.Kernel) -> list[Diagnostic]:
    """Collective statements that only a part of a warp executes, one finding for each."""
    found = []
    for role in kernel.roles:
        for node in statements(role.body):
            what = _collective(node)
            if what and (node.executor != "lanes" or role.solo):
                message = (
                    f"{what} is executed by one lane of a warp of `{role.name}`; all lanes must execute it together"
                )
                said = finding("C601", message, None, help="let every thread of the role execute it")
                found.append(said.model_copy(update={"span": node.span}))
    return found


def _collective(node: x.Stmt) -> str:
    if isinstance(node, x.Commit | x.GroupWait) and node.queue == "wgmma":
        return f"wgmma {'commit' if isinstance(node, x.Commit) else 'wait'}"
    if isinstance(node, x.Fence) and node.what == "wgmma":
        return "wgmma.fence"
    if isinstance(node, x.Op) and OPS[node.op].width != "thread":
        return node.op
    return ""
