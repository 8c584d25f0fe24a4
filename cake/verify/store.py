"""Verdicts kept by content: an expanded kernel that has been decided by this verifier is not decided again.

The key holds the kernel with its spans (findings point at them), and the sources of whatever decides. A verdict of full
effort also answers a question for a quick one.
"""

from __future__ import annotations

import contextlib
import hashlib
from functools import cache
from pathlib import Path

from pydantic import ValidationError

import cake
from cake.cache import Cache
from cake.ir import expanded as x
from cake.verify.verdict import Verdict

PARTS = ("diagnostics", "ir", "machine", "verify")
"""Packages whose sources decide a verdict."""


@cache
def revision(parts: tuple[str, ...] = PARTS) -> str:
    """What is decided with: names, sizes and times of the sources of some packages."""
    root = Path(cake.__file__).parent
    digest = hashlib.sha256(cake.__version__.encode())
    for part in parts:
        for path in sorted((root / part).rglob("*.py")):
            stat = path.stat()
            digest.update(f"{path.relative_to(root)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def key_of(kernel: x.Kernel, effort: str) -> str:
    """The key of a verdict."""
    text = f"verdict {effort} {revision()} {kernel.model_dump_json()}"
    return hashlib.sha256(text.encode()).hexdigest()


def decide(kernel: x.Kernel, *, effort: str = "full", store: Cache | None = None, use_store: bool = True) -> Verdict:
    """The verdict on ``kernel``, from the cache where it has it."""
    from cake.verify.engine import verify

    store = store or Cache()
    if use_store:
        for known in ("full",) if effort == "full" else ("full", "quick"):
            entry = store.get(key_of(kernel, known))
            if entry is not None:
                with contextlib.suppress(KeyError, ValidationError):
                    return Verdict.model_validate_json(entry["verdict"])
    verdict = verify(kernel, effort="full" if effort == "full" else "quick")
    if use_store:
        store.put(key_of(kernel, effort), {"verdict": verdict.model_dump_json().encode()})
    return verdict
