"""The GEMM of clusters that share loads, as it is expanded: the right product in every schedule, ragged or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cake import machine
from cake.compiler import expand_file
from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.machine.elementwise import to_f32
from tests.machine import small as s
from tests.machine.edit import edit, updated

SOURCE = Path(__file__).parents[2] / "examples" / "gemm_cluster.cake"
SHAPES = [
    (300, 136, 200),  # an odd number of tiles along the clustered axis
    (40, 8, 8),  # less than one tile, a single slab
    (256, 128, 64),  # nothing ragged
    (900, 264, 136),  # several tiles a cluster
]


def operands(m: int, n: int, k: int) -> dict[str, Any]:
    rng = np.random.default_rng(m)
    a, b = (rng.standard_normal((rows, k), dtype=np.float32).astype(s.BF16) for rows in (m, n))
    return {"a": a, "b": b, "c": s.empty("bf16", m, n)}


def right(found: Any, given: dict[str, Any]) -> None:
    exact = to_f32(given["a"]) @ to_f32(given["b"]).T
    np.testing.assert_allclose(to_f32(found), exact, rtol=1 / 128, atol=1e-2)


@pytest.mark.parametrize("cluster", [1, 2, 4])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_product(cluster: int, m: int, n: int, k: int) -> None:
    given = operands(m, n, k)
    kernel = expand_file(SOURCE, constants={"BN": 128, "CLUSTER": cluster, "GROUP": 4})
    right(machine.run(kernel, given, ctas=2).outputs["c"], given)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_twenty_schedules_agree_bit_by_bit(m: int, n: int, k: int) -> None:
    given = operands(m, n, k)
    kernel = expand_file(SOURCE, constants={"BN": 128, "STAGES": 3})
    first = machine.run(kernel, given).outputs["c"]
    right(first, given)
    for seed in range(1, 20):
        again = machine.run(kernel, given, seed=seed).outputs["c"]
        assert np.array_equal(first.view(np.uint16), again.view(np.uint16)), seed


@pytest.mark.parametrize("ctas", [1, 3, 8])
def test_number_of_clusters(ctas: int) -> None:
    given = operands(700, 136, 72)
    kernel = expand_file(SOURCE, constants={"BN": 128})
    result = machine.run(kernel, given, ctas=ctas)
    right(result.outputs["c"], given)
    assert result.clusters == min(ctas, 6)


def test_a_release_that_peers_never_get_stops_the_cluster() -> None:
    kernel = expand_file(SOURCE, constants={"BN": 128})
    own = edit(kernel, lambda n: updated(n, peers=None) if isinstance(n, x.Arrive) and n.peers else n)
    with pytest.raises(CakeError) as failure:
        machine.run(own, operands(256, 128, 640))
    assert [d.code for d in failure.value.diagnostics] == ["P101"]
