"""CUDA of clusters: multicast copies, arrivals at peers, cluster barriers, the rank."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from cake.codegen.build import build
from cake.codegen.emit import emit
from cake.codegen.report import disassemble
from cake.compiler import expand_file, expand_text
from cake.expand.prune import flatten
from cake.ir import expanded as x
from cake.machine.order import check
from tests.machine.small import BF16

SOURCE = Path(__file__).parents[2] / "examples" / "gemm_cluster.cake"


def gemm(cluster: int) -> x.Kernel:
    return expand_file(SOURCE, constants={"CLUSTER": cluster})


@pytest.mark.parametrize("cluster", [2, 4])
def test_text(cluster: int) -> None:
    text = emit(gemm(cluster), lines=False)
    assert f"__cluster_dims__({cluster}, 1, 1)" in text
    load = text[text.index("role_load") : text.index("role_math")]
    math = text[text.index("void role_math") : text.index('extern "C"')]
    entry = text[text.index('extern "C"') :]
    assert load.count("tma_load_2d_multicast(") == 1 and f"{(1 << cluster) - 1:#x});" in load
    assert f"blockIdx.x / {cluster}" in load and "const int rank = cluster_rank();" in load
    assert "barrier_arrive_expect(smem + AB_FULL + 8 * ab_fill.slot, 49152);" in load
    releases = re.findall(r"barrier_arrive_peer\([^;]*, (\d+), 1\);", math)
    assert releases == [str(rank) for rank in range(cluster)] * 2
    assert math.index("bulk_wait_read<0>();") < math.index("cluster_arrive_relaxed();") < math.index("cluster_wait();")
    assert "cluster_arrive_relaxed();\n    cluster_wait();" in entry and "named_sync" not in entry
    assert "cluster_arrive" not in load


def test_a_cluster_of_one_is_the_plain_kernel() -> None:
    """The same SASS as without the attributes, up to the kernel's name."""
    plain = SOURCE.read_text().replace(" cluster(CLUSTER)", "").replace(", multicast=m", "")
    ours, theirs = build(gemm(1)), build(expand_text(plain, constants={"CLUSTER": 1}))
    assert ours.cubin and disassemble(ours.cubin) == disassemble(theirs.cubin)
    assert emit(gemm(1), lines=False) == emit(expand_text(plain, constants={"CLUSTER": 1}), lines=False)


def test_machine_code() -> None:
    """No spills; a release to peers costs no memory barrier; the producer's addresses stay uniform."""
    artifact = build(gemm(2))
    assert artifact.report.registers == 168
    assert not artifact.report.spills
    assert "mbarrier.arrive.shared::cluster.b64" in artifact.ptx
    assert ".release.cluster.shared::cluster" not in artifact.ptx
    assert artifact.ptx.count("barrier.cluster.arrive.relaxed.aligned") == 2
    assert "barrier.cluster.arrive.release" not in artifact.ptx
    sass, _ = disassemble(artifact.cubin)
    if sass is not None:
        assert re.search(r"UTMALDG\.2D\.MULTICAST", sass)
        code = [line for line in sass.splitlines() if re.search(r"HGMMA|MEMBAR|SYNCS|UCGABAR", line)]
        first = next(i for i, line in enumerate(code) if "HGMMA" in line)
        loop = code[first : next(i for i, line in enumerate(code) if i > first and "MEMBAR" in line)]
        assert sum("SYNCS.ARRIVE.TRANS64.RED" in line for line in loop) == 4
        assert re.search(r"SYNCS\.PHASECHK\.TRANS64\.TRYWAIT \w+, \[UR\d+\+0x\w+\], R\d+", sass)


SOLO = """
kernel pair(x: bf16[K, 64], out y: bf16[2, K, 64]) for sm_90a:
    tiles once:
        m in 2 cluster(2)

    role load: warps 4
    role send: warps 4

    pipeline p[2] load -> send:
        x: bf16[64, 64] swizzle(128)

    do load:
        for t in tiles:
            for j in range(cdiv(K, 64)):
                with p.fill() as s:
                    tma.load(s.x, x[j * 64 : j * 64 + 64, :], multicast=m)

    do send:
        for t in tiles:
            for j in range(cdiv(K, 64)):
                s = p.wait()
                tma.store(y[t.m, j * 64 : j * 64 + 64, :], s.x)
                tma.store.wait_read()
                p.release()
"""


def test_a_role_that_signals_peers_meets_them_with_whole_warps() -> None:
    """`barrier.cluster` with `.aligned` wants all lanes, so no elected lane runs such a role alone."""
    kernel = expand_text(SOLO)
    send = next(r for r in kernel.roles if r.name == "send")
    assert not send.solo and next(r for r in kernel.roles if r.name == "load").solo
    assert any(isinstance(n, x.Arrive) and n.peers == (0, 1) for n in flatten(send.body))
    assert kernel.barrier("p.empty").count == 8
    given = {"x": np.ones((200, 64), BF16), "y": np.zeros((2, 200, 64), BF16)}
    assert check(kernel, given) == []
    build(kernel)
