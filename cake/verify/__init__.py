"""The verifier: three verdicts on an expanded kernel, with how far each reaches.

``verify`` decides; ``search`` and ``oracle`` are engines that share no code with the machine, and check what it decides. So
nothing of the machine is imported here before it is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cake.verify.engine import Budget, Effort, verify
    from cake.verify.verdict import Verdict

__all__ = ["Budget", "Effort", "Verdict", "verify"]


def __getattr__(name: str) -> Any:
    if name == "Verdict":
        from cake.verify.verdict import Verdict

        return Verdict
    if name in __all__:
        from cake.verify import engine

        return getattr(engine, name)
    raise AttributeError(name)
