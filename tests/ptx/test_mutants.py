"""Broken code is refused: the PTX or the CUDA is damaged on purpose, and the finding says where."""

from __future__ import annotations

import pytest

from cake.diagnostics import Diagnostic
from tests.ptx.compiled import compile_kernel, edited, example, findings, needs_nvrtc, ptx_of, source_of

pytestmark = needs_nvrtc

# ruff: noqa: E501
ASM = r"\t// begin inline asm\n"
RELEASE = r"^mbarrier\.arrive\.shared::cta\.b64 .*\n"

GEMM_PTX: dict[str, tuple[str, str, str]] = {
    "a fence dropped": (r"^\s*fence\.proxy\.async\.shared::cta;\n", "", "math"),
    "the fence of initialised barriers dropped": (r"^\s*fence\.mbarrier_init.*\n", "", "load"),
    "a release dropped": (RELEASE, "", "math"),
    "two arrivals for one": (r"(" + RELEASE + r")", r"\1\1", "math"),
    "a wrong count": (r"(mov\.u32 \t%r\d+, )8(;\n" + ASM + r"\tmbarrier\.init)", r"\g<1>7\2", "load"),
    "wrong expected bytes": (r"(mov\.u32 \t%r\d+, )49152;", r"\g<1>49136;", "load"),
    "a wrong parity": (r"(xor\.b32  \t%r\d+, %r\d+, )1;", r"\g<1>0;", "load"),
    "a phase that never flips": (r"xor\.b32  \t(%r\d+), (%r\d+), (%r\d+);(?=\n.*\n\tadd)", r"mov.u32 \t\1, \2;", "load"),
    "one more group kept": (r"(wgmma\.wait_group\.sync\.aligned )1;", r"\g<1>2;", "math"),
    "one more store kept": (r"(wait_group\.read )1;", r"\g<1>2;", "math"),
    "a wait for all but reads": (r"wait_group\.read 1;", "wait_group 1;", "math"),
    "a wgmma commit dropped": (r"^\s*wgmma\.commit_group.*\n", "", "math"),
    "a bulk commit dropped": (r"^\s*cp\.async\.bulk\.commit_group.*\n", "", "math"),
    "a wgmma fence dropped": (r"^\s*wgmma\.fence.*\n", "", "math"),
    "another barrier": (r"(add\.s32 \t%r\d+, %r\d+, )EMPTY;\n\txor", r"\g<1>FULL;\n\txor", "load"),
    "another thread count": (r"(mov\.u32 \t%r\d+, )128;", r"\g<1>96;", "math"),
    "a named barrier dropped": (r"^\s*barrier\.cta\.sync\.aligned %r\d+, %r\d+;\n(?=(?:.*\n)*?.*stmatrix)", "", "load"),
    "an arrival for a synchronisation": (r"barrier\.cta\.sync(.*\n(?:.*\n){1,40}?.*stmatrix)", r"barrier.cta.arrive\1", ""),
    "a warp barrier dropped": (r"^\s*bar\.warp\.sync.*\n", "", "math"),
    "a wait without a loop": (r"^bra again;\n", "", "load"),
    "a wait that polls once": (r"^@complete bra done;\nbra again;\n", "", "load"),
    "a relaxed wait": (r"try_wait\.parity\.shared", "try_wait.parity.relaxed.cta.shared", "load"),
    "no setmaxnreg": (r"^\s*setmaxnreg\.dec.*\n", "", "load"),
    "another number of registers": (r"setmaxnreg\.inc\.sync\.aligned\.u32 232", "setmaxnreg.inc.sync.aligned.u32 240", "math"),
    "a wgmma dropped": (r"^wgmma\.mma_async.*\n", "", "math"),
    "a wrong transposition": (r"^(wgmma\.mma_async.*, 1, 1, 0), 0;", r"\1, 1;", "math"),
    "another shape": (r"^(wgmma\.mma_async\.sync\.aligned\.)m64n256k16", r"\1m64n248k16", "math"),
    "another step of a descriptor": (r"(add\.s32 \t%r\d+, %r\d+, )6;", r"\g<1>5;", "math"),
    "another descriptor layout": (r"4611686293305294848", "4611686293305294849", "math"),
    "a copy dropped": (r"^\s*cp\.async\.bulk\.tensor\.2d\.shared.*\n", "", "load"),
    "a copy to another place": (r"(shl\.b32 \t%r\d+, %r\d+, )15;", r"\g<1>14;", "load"),
    "a store dropped": (r"^\s*cp\.async\.bulk\.tensor\.2d\.global.*\n", "", "math"),
    "an instruction that is not known": (r"^(\s*)wgmma\.commit_group", r"\1tcgen05.fence::before_thread_sync;\n\1wgmma.commit_group", "math"),
    "a fence too much": (r"^(\s*)wgmma\.commit_group", r"\1fence.proxy.async;\n\1wgmma.commit_group", "math"),
    "a matrix store dropped": (r"^\s*stmatrix.*\n", "", "math"),
    "another ring length": (r"setp\.eq\.s32 \t(%p\d+), (%r\d+), 4;", r"setp.eq.s32 \t\1, \2, 3;", "load"),
}  # fmt: skip


@pytest.mark.parametrize("name", GEMM_PTX)
def test_ptx(name: str) -> None:
    pattern, replacement, role = GEMM_PTX[name]
    for word, barrier in (("FULL", "ab.full"), ("EMPTY", "ab.empty")):
        offset = str(example("gemm").barrier(barrier).offset)
        pattern, replacement = pattern.replace(word, offset), replacement.replace(word, offset)
    found = findings("gemm", edited(ptx_of("gemm"), pattern, replacement))
    assert {d.code for d in found} == {"P119"}
    assert any(f"role `{role}`" in d.message for d in found) if role else found
    explained(found)


def explained(found: list[Diagnostic]) -> None:
    """Every finding names both sides, a line of the source, and the way out."""
    for d in found:
        assert d.severity == "error"
        assert d.span is not None and d.span.file.endswith(".cake")
        assert any(f.startswith("checked kernel goes on: ") for f in d.facts)
        assert any(f.startswith("compiled code goes on: ") for f in d.facts)
        assert d.help is not None and "bug of the compiler" in d.help


CUDA: dict[str, tuple[str, str, str]] = {
    "a release by all lanes": ("gemm", r"if \(elected\) \{(?=\n(?:#line.*\n)?\s*barrier_arrive)", "if (true) {"),
    "a release by one warp": ("gemm", r"if \(elected\) \{(?=\n(?:#line.*\n)?\s*barrier_arrive)", "if (one) {"),
    "another named barrier": ("gemm", r"named_sync\(MATH_BARRIER \+ w", "named_sync(MATH_BARRIER + 1 - w"),
    "another slot": ("gemm", r"slot_back\(ab_wait\.slot, 2, 4\)", "slot_back(ab_wait.slot, 1, 4)"),
    "a release from the second iteration": ("gemm", r"if \(k > 0\)", "if (k > 1)"),
    "a sum that starts with what was there": ("gemm", r"j > 0 \|\| k > 0", "1"),
    "a cursor that stands still": ("gemm", r"^\s*advance<2>\(cs_fill\);\n", ""),
    "the drain by all": ("gemm", r"if \(one\) \{(?=\n(?:#line.*\n)?\s*bulk_wait_read<0>)", "if (lane == 0) {"),
    "two waits swapped": (
        "attention",
        r"(barrier_wait\(smem \+ )QS_FULL( \+ 8 \* qs_wait\.slot, qs_wait\.phase\);(?:.*\n)*?.*barrier_wait\(smem \+ )KS_FULL( \+ 8 \* ks_wait\.slot, ks_wait\.phase\);)",
        r"\1KS_FULL\2QS_FULL\3",
    ),
    "the turn passed to oneself": ("attention", r"TENSOR_CORES_BARRIER \+ \(w \+ 1 & 1\)", "TENSOR_CORES_BARRIER + w"),
}  # fmt: skip


SAMPLED: dict[str, tuple[str, str, str]] = {
    "the next slab": ("gemm", r"const int k0 = k \* 64;", "const int k0 = k * 64 + 64;"),
    "the rows of the other instance": ("gemm", r"const int r0 = t_m0 \+ 64 \* w;", "const int r0 = t_m0 + 64 - 64 * w;"),
    "the last slab left out": ("gemm", r"= cdiv\(p\.K, 64\)", "= p.K / 64"),
    "the last tile left out": ("gemm", r"t_pos < t_pos_end;", "t_pos < t_pos_end - 1;"),
    "coordinates swapped": ("gemm", r"(tma_store_2d\(p[^;]*), ([^,;]+), ([^,;]+)\);", r"\1, \3, \2);"),
    "another head": ("attention", r"const int g = floor_div\(t_h, p\.H / p\.HK\);", "const int g = t_h;"),
}  # fmt: skip
"""Mistakes that only a launch with known parameters shows."""


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled(name: str) -> None:
    example_name, pattern, replacement = SAMPLED[name]
    source = edited(source_of(example_name), pattern, replacement)
    found = findings(example_name, compile_kernel(example(example_name), source))
    assert {d.code for d in found} == {"P119"}
    assert all(any(f.startswith("in a launch with ") for f in d.facts) for d in found)
    explained(found)


@pytest.mark.parametrize("name", CUDA)
def test_cuda(name: str) -> None:
    example_name, pattern, replacement = CUDA[name]
    source = edited(source_of(example_name), pattern, replacement)
    found = findings(example_name, compile_kernel(example(example_name), source))
    assert {d.code for d in found} == {"P119"}
    explained(found)


def test_not_ptx() -> None:
    for text in ("", "no code", ptx_of("gemm")[:9000]):
        (found,) = findings("gemm", text)
        assert found.code == "P119"
        assert "could not be compared" in found.message
