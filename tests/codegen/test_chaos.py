"""Chaos builds: delays at every statement that synchronises, poison before the first one, and the same protocol otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cake.cache import Cache
from cake.codegen import emit, nvrtc, parameters
from cake.codegen.build import build, read, write
from cake.codegen.chaos import poisoned, sides
from cake.codegen.sync import SYNC
from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.ir.ops import OPS
from cake.ptx.check import check
from tests.expanded.gemm import gemm
from tests.ptx.compiled import compile_kernel, edited, example, needs_nvrtc

CALM = {"exit"}
"""Synchronising statements without delays: nothing comes after."""


def statements(body: tuple[x.Stmt, ...]) -> Iterator[x.Node]:
    """All statements of a program."""
    for node in body:
        yield node
        if isinstance(node, x.For):
            yield from statements(node.body)
        elif isinstance(node, x.If):
            yield from statements(node.then)
            yield from statements(node.orelse)


def nodes(kernel: x.Kernel) -> list[x.Node]:
    """All statements of a kernel, as the emitter sees it."""
    return [n for body in (kernel.entry, *(r.body for r in kernel.roles)) for n in statements(body)]


def test_every_kind_of_synchronisation_is_delayed() -> None:
    kernel = poisoned(gemm())
    seen = {n.kind: sides(n) for n in nodes(kernel) if n.kind in SYNC}  # type: ignore[attr-defined]
    assert {k for k, delays in seen.items() if any(delays)} == set(seen) - CALM
    moved = {n: sides(x.Op(op=n, operands={})) for n in OPS}
    assert {n for n, delays in moved.items() if delays == (True, True)} == {
        *("tma.load", "tma.store", "tma.reduce", "tma.prefetch", "cp_async", "signal", "wait_until", "draw")
    }
    assert not any(any(d) for n, d in moved.items() if n in ("wgmma", "load", "store", "assign", "stmatrix"))


def test_delays_in_the_source() -> None:
    kernel, source = gemm(), emit(gemm(), chaos=True)
    delays = re.findall(r"chaos_delay\(p\.chaos_seed, (0x[0-9a-f]+), (.*)\);", source)
    assert len(delays) == sum(sum(sides(n)) for n in nodes(poisoned(kernel)))
    assert len({place for place, _ in delays}) == len(delays), "each place has a number of its own"
    assert {"0", "t_pos", "(t_pos) * 61 + k"} <= {step for _, step in delays}
    issue = source[source.index("fence_wgmma();\n", source.index("role_math")) :]
    assert "chaos_delay" not in issue[: issue.index("wgmma_commit();")], "ptxas would serialise the wgmma"
    wait = source.index("barrier_wait(smem + AB_FULL")
    assert source[:wait].rstrip().endswith(");") and "chaos_delay" in source[wait - 120 : wait]
    plain = emit(kernel)
    assert "chaos" not in plain and "poison" not in plain


def test_poison_comes_before_the_barriers() -> None:
    source = emit(gemm(), chaos=True)
    entry = source[source.index("__global__") :]
    order = [entry.index(what) for what in ("poison_shared(", "fence_async_shared();", "named_sync(", "barrier_init(")]
    assert order == sorted(order)
    named = poisoned(gemm()).named
    assert [b.threads for b in named if b.id == 0] == [gemm().threads], "the barrier of the whole CTA is used again"
    alone = gemm().model_copy(update={"named": ()})
    assert [(b.id, b.threads) for b in poisoned(alone).named] == [(0, gemm().threads)]


def test_the_seed_is_the_last_parameter() -> None:
    plain, chaos = parameters(gemm()), parameters(gemm(), chaos=True)
    assert chaos[: len(plain)] == plain and [(p.kind, p.ctype) for p in chaos[len(plain) :]] == [("seed", "uint32_t")]


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("gemm", {}),
        ("attention", {"BN": 176, "Q_STAGES": 1}),
        ("gemm_pingpong", {"BN": 192, "STAGES": 4}),
        ("kmeans", {"D": 128, "WGS": 2}),
    ],
)
def test_delays_cost_no_registers(name: str, constants: dict[str, int]) -> None:
    """Kernels with full registers: nothing is spilled, no wgmma is serialised, and the translation check passes."""
    kernel = example(name, "assign" if name == "kmeans" else None, **constants)
    built = build(kernel, chaos=0)
    assert not built.report.spills and not built.diagnostics
    assert built.report.max_registers is None or built.report.registers <= built.report.max_registers


@needs_nvrtc
def test_the_protocol_is_checked_as_ever() -> None:
    kernel = example("gemm")
    source = emit(kernel, chaos=True)
    assert not check(poisoned(kernel), compile_kernel(kernel, source))
    for pattern, instead in ((r"bulk_wait_read<1>", "bulk_wait_read<2>"), (r"^ *__syncwarp\(\);$", "")):
        found = check(poisoned(kernel), compile_kernel(kernel, edited(source, pattern, instead)))
        assert {d.code for d in found} == {"P119"}
    assert {d.code for d in check(kernel, compile_kernel(kernel, source))} == {"P119"}, "its prologue is its own"


@needs_nvrtc
def test_seeds_share_a_compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    original = nvrtc.compile_source

    def counting(source: str, *args: object, **options: object) -> nvrtc.Compiled:
        compiled.append(source)
        return original(source, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(nvrtc, "compile_source", counting)
    cache = Cache(tmp_path / "cache")
    kernel = example("softmax", "softmax")
    built = [build(kernel, cache=cache, chaos=seed) for seed in (1, 2, None)]
    assert len(compiled) == 2 and built[0].cubin == built[1].cubin != built[2].cubin
    for artifact, seed in zip(built, (1, 2, None), strict=True):
        where = write(artifact, tmp_path / str(seed))
        assert json.loads((where / "manifest.json").read_text())["chaos"] == seed
        assert read(where).chaos == seed
        assert [p.kind for p in read(where).parameters].count("seed") == (seed is not None)


def test_an_ampere_kernel_has_no_proxy_fence() -> None:
    source = emit(example("softmax", "softmax").model_copy(update={"target": "sm_80"}), chaos=True)
    assert "poison_shared(" in source and "named_sync(" in source and "fence_async_shared" not in source


def test_refusals_do_not_depend_on_chaos() -> None:
    with pytest.raises(CakeError) as refused:
        build(example("gemm"), chaos=0, options=("--no-such-option",), use_cache=False)
    assert {d.code for d in refused.value.diagnostics} <= {"G001", "G005"}
