"""The probes: a small CUDA kernel for each axiom that the ISA does not say in so many words (docs/axioms.md).

A probe counts contradictions over many rounds under delays. It can refute its axiom and cannot prove it. Some variants only
observe: they leave out what the rules ask for, and say whether the hardware would have forgiven it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cake.codegen.device import device_code
from cake.codegen.nvrtc import compile_source

HERE = Path(__file__).parent / "probes"

IN_WORDS = 1 << 20
"""Words of the input, each holding its own number."""

OUT_WORDS = 1 << 22
"""Words of the output."""


@dataclass(frozen=True)
class Probe:
    """A launch of ``source``. ``axiom``: what it is about; ``claims``: contradictions refute it (otherwise it observes).
    ``pattern``: the output begins with two tiles of bf16 ones and twos (``TILE`` words each) instead of zeros."""

    name: str
    axiom: str
    source: str
    title: str
    grid: int
    threads: int
    shared: int
    rounds: int
    cluster: int = 1
    defines: dict[str, int] = field(default_factory=dict)
    claims: bool = True
    pattern: int = 0

    def text(self) -> str:
        """The whole translation unit: the device functions that emitted kernels use, what probes share, and the probe."""
        own = (HERE / "common.cuh").read_text() + (HERE / self.source).read_text()
        defined = "".join(f"#define {n} {v}\n" for n, v in self.defines.items())
        return device_code(own + " UNROLLED ROLLED uint64_t uint16_t") + "\n\n" + defined + own

    def cubin(self) -> bytes:
        """The probe, compiled for sm_90a."""
        return compile_source(self.text(), "sm_90a", name=self.source, allow={"W713", "G007", "G008"}).cubin


TILE = 16 * 2048
RING = 2 * 16384 + 64

PROBES = {
    p.name: p
    for p in (
        Probe(
            "wgmma_read_after_issue", "A1", "wgmma_read.cu", "one warp's wait ends the operand reads of its warpgroup",
            264, 160, 2 * TILE + 64, 4000, defines={"LATE": 1}, pattern=TILE // 4,
        ),
        Probe(
            "wgmma_read_before_issue", "A1", "wgmma_read.cu", "the same, the other warps late to the issue itself",
            264, 160, 2 * TILE + 64, 4000, defines={"LATE": 2}, pattern=TILE // 4,
        ),
        Probe(
            "bulk_visible", "A2", "bulk_visible.cu", "a bulk copy is visible to ordinary loads after the wait",
            528, 256, RING, 4000,
        ),
        Probe(
            "multicast", "A3", "multicast.cu", "a multicast copy is visible to a default-scope waiter",
            256, 160, 2 * 8192 + 64, 4000, cluster=4,
        ),
        Probe(
            "writes_fenced", "A4", "fence_writes.cu", "writers fence, then a barrier, then a bulk store",
            528, 128, 16384, 2000, defines={"FENCE": 1},
        ),
        Probe(
            "writes_fenced_by_issuer", "A4", "fence_writes.cu", "only the issuer fences, after the barrier",
            528, 128, 16384, 2000, defines={"FENCE": 2}, claims=False,
        ),
        Probe(
            "writes_unfenced", "A4", "fence_writes.cu", "no fence at all",
            528, 128, 16384, 2000, defines={"FENCE": 0}, claims=False,
        ),
        Probe(
            "reads_fenced", "A4", "fence_reads.cu", "readers fence, give a slot back, and it is refilled",
            528, 256, 16384 + 64, 8000, defines={"FENCE": 1},
        ),
        Probe(
            "reads_unfenced", "A4", "fence_reads.cu", "readers give a slot back without a fence",
            528, 256, 16384 + 64, 8000, defines={"FENCE": 0}, claims=False,
        ),
        Probe(
            "store_read", "D207", "store_read.cu", "a bulk store's source may be rewritten after wait_group.read",
            264, 128, 32768, 2000,
        ),
        Probe(
            "permission", "A5", "permission.cu", "a remote arrival of CTA scope permits the refill of operands",
            132, 128, 2 * TILE + 64, 4000, cluster=2, pattern=TILE // 4,
        ),
        Probe(
            "remote_data", "A5", "remote_data.cu", "remote data through an arrival of cluster scope",
            264, 128, 4096 + 64, 4000, cluster=2, defines={"SCOPE": 1},
        ),
        Probe(
            "remote_data_cta_scope", "A5", "remote_data.cu", "remote data through an arrival of CTA scope",
            264, 128, 4096 + 64, 4000, cluster=2, defines={"SCOPE": 0}, claims=False,
        ),
        Probe(
            "remote_data_relaxed", "A5", "remote_data.cu", "remote data through a relaxed arrival of cluster scope, no fence",
            264, 128, 4096 + 64, 4000, cluster=2, defines={"SCOPE": 2}, claims=False,
        ),
        Probe("elect", "A6", "elect.cu", "the elected lane is always the same", 132, 128, 0, 4000),
        Probe("progress", "A7", "progress.cu", "a warp with work goes on beside spinning ones", 132, 1024, 0, 2000),
        Probe("registers", "A8", "registers.cu", "setmaxnreg.inc waits for registers of its own CTA", 132, 256, 0, 1),
        Probe(
            "dispatch", "A9", "dispatch.cu", "CTAs that start before one with a lower number",
            4096, 32, 0, 1, claims=False,
        ),
        Probe(
            "transactions", "D2", "transactions.cu", "a phase completes with its arrivals and announced bytes, not before",
            264, 32, 4096 + 64, 4000,
        ),
    )
}  # fmt: skip
