"""The third engine on emitted code: frozen litmus programs, examples at small sizes, a sample of mutants, and code in
which single instructions are missing. ``python -m benchmarks.engines`` does the same at length.

What differs from the other engines here has to be in ``disagreements``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.ptx.interpret import Outcome, examine
from tests.engines.emitted import compiled, interpret, launch_of
from tests.engines.kernels import SMALL, Subject
from tests.engines.store import load
from tests.litmus.catalogue import kernel, verdicts
from tests.litmus.test_litmus import arguments
from tests.mutation.judge import Truth, truth, unrolled
from tests.mutation.parents import Parent
from tests.mutation.site import Mutant
from tests.mutation.test_sample import chosen, sample
from tests.ptx.compiled import needs_nvrtc

pytestmark = needs_nvrtc
TABLE = verdicts()
CASES = [(name, size, codes) for name, row in TABLE.items() for size, codes in row.expected()]
STORED = {d.program: d.now["ptx"] for d in load().values()}


@pytest.mark.parametrize(("name", "size", "codes"), CASES)
def test_litmus(name: str, size: dict[str, int], codes: list[str]) -> None:
    k = kernel(name)
    said = interpret(k, {**arguments(k), **size}, TABLE[name].ctas, seeds=2, warps=1)
    meant = "clean" if not codes else "policy" if TABLE[name].verdict == "refused" else "broken"
    assert said.verdict in (meant, STORED.get(name)), said


@pytest.mark.parametrize("name", SMALL)
def test_examples(name: str) -> None:
    """Kernels that are right: nothing is found in turn, against the elected lanes, and in a random schedule."""
    subject: Subject = SMALL[name]()
    said = interpret(subject.kernel, subject.values, subject.clusters, seeds=1, warps=0)
    assert said.verdict == "clean", said


def judged() -> Iterator[tuple[Parent, Mutant]]:
    """Every fourth of the sample."""
    known = {p.name: p for p in chosen()}
    every = [(known[name], m) for name, found in sorted(sample().items()) for m in found]
    yield from every[::4]


def says(parent: Parent, k: x.Kernel) -> Outcome | None:
    """The first launch that is not clean; None: the kernel has no code, or no launch of it may start."""
    try:
        code = compiled(k, keep_loads=True)
    except CakeError:
        return None
    last = None
    for values in parent.launches:
        try:
            last = examine(code, launch_of(k, values, parent.ctas), seeds=1, warps=1)
        except CakeError:
            continue
        if last.verdict != "clean":
            return last
    return last


MEANT = {"broken": "broken", "harmless": "clean", "policy": "policy"}


def test_mutants() -> None:
    """What the engines above the code call broken is found in the code too, and what they call harmless is not blamed."""
    wrong: list[Any] = []
    seen: Counter[str] = Counter()
    for parent, m in judged():
        launches, known = unrolled(parent, m.kernel)
        real: Truth = known or truth(parent, m.kernel, launches)
        said = says(parent, m.kernel)
        if said is None or real.kind not in MEANT:
            continue
        seen[said.verdict] += 1
        meant_elsewhere = real.why == "stale" and said.verdict == "clean"  # which fill was meant is not in the code
        if said.verdict != MEANT[real.kind] and not meant_elsewhere:
            wrong.append((parent.name, m.number, m.what, real.kind, real.why, said))
    assert not wrong
    assert seen["broken"] > 20 and seen["clean"] > 6


MISSING = {
    "mbarrier.try_wait": 2,
    "mbarrier.arrive.shared::cta": 2,
    "mbarrier.arrive.expect_tx": 1,
    "fence.proxy.async": 1,
    "barrier.cta.sync": 3,
    "cp.async.bulk.wait_group.read": 1,
    "cp.async.bulk.commit_group": 1,
    "wgmma.wait_group": 2,
    "wgmma.fence": 1,
    "mbarrier.init": 8,
}
"""Instructions of GEMM's code, each of which is left out in turn; how many there are at least."""


def without(code: str, opcode: str) -> Iterator[str]:
    """The code without one of the instructions; a wait without its test passes at once."""
    lines = code.split("\n")
    for n, line in enumerate(lines):
        if line.strip().startswith(opcode):
            instead = f"setp.eq.u32 {line.split()[1]} 0, 0;" if opcode.endswith("try_wait") else ""
            yield "\n".join([*lines[:n], instead, *lines[n + 1 :]])


def test_missing_instructions() -> None:
    """The interpreter knows nothing of what was meant: a fence, count or wait that the emitter forgot has to show."""
    subject = SMALL["gemm"]()
    code = compiled(subject.kernel)
    launch = launch_of(subject.kernel, subject.values, subject.clusters)
    for opcode, least in MISSING.items():
        edited = list(without(code, opcode))
        assert len(edited) >= least, opcode
        for text in {edited[0], edited[-1]}:
            assert examine(text, launch, seeds=0, warps=0).verdict == "broken", opcode
