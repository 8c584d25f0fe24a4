"""Every litmus program gets exactly its verdict, in every profile and schedule; its file is what its builder says."""

from __future__ import annotations

import numpy as np
import pytest

from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from cake.ir.expr import Const
from cake.machine.order import Profile, check
from tests.litmus.catalogue import frozen, kernel, text, verdicts
from tests.litmus.registry import PROGRAMS

TABLE = verdicts()
CASES = [(name, size, codes) for name, row in TABLE.items() for size, codes in row.expected()]


def arguments(k: x.Kernel) -> dict[str, np.ndarray]:
    """Zeros for every tensor (their extents are constants)."""
    shapes = {t.name: tuple(int(e.value) for e in t.shape if isinstance(e, Const)) for t in k.tensors}
    return {t.name: np.zeros(shapes[t.name], numpy_dtype(t.dtype)) for t in k.tensors}


def codes(name: str, size: dict[str, int], profile: Profile = "conservative", seed: int = 0) -> list[str]:
    """The codes found, each once, in order."""
    k = kernel(name)
    found = check(k, {**arguments(k), **size}, ctas=TABLE[name].ctas, profile=profile, seed=seed)
    return list(dict.fromkeys(d.code for d in found))


def test_table_and_programs_agree() -> None:
    assert set(TABLE) == set(PROGRAMS)
    assert {int(name[:2]) for name in TABLE} == set(range(1, 46))


@pytest.mark.parametrize("name", PROGRAMS)
def test_frozen(name: str) -> None:
    """The file, the builder and a reading of the file are one program."""
    assert frozen(name).read_text() == text(kernel(name)), "python -m tests.litmus.catalogue writes it anew"
    assert x.Kernel.model_validate_json(frozen(name).read_text()) == kernel(name)


@pytest.mark.parametrize(("name", "size", "expected"), CASES)
def test_verdict(name: str, size: dict[str, int], expected: list[str]) -> None:
    assert codes(name, size) == expected


@pytest.mark.parametrize("name", TABLE)
def test_practice_profile(name: str) -> None:
    """Cumulative fences, and no fence for generic reads: what that profile accepts, and nothing else, changes."""
    row = TABLE[name]
    for size, expected in row.expected():
        assert codes(name, size, "practice") == (expected if row.practice is None else row.practice)


@pytest.mark.parametrize("name", [n for n, r in TABLE.items() if not any(code for _, code in r.expected())])
def test_safe_in_every_schedule(name: str) -> None:
    """Theorem 1: the verdict does not depend on the run it was read from."""
    for seed in range(1, 13):
        assert codes(name, {}, seed=seed) == []


@pytest.mark.parametrize("name", [n for n, r in TABLE.items() if r.codes and not r.sizes])
def test_unsafe_in_every_schedule(name: str) -> None:
    for seed in range(1, 13):
        assert codes(name, {}, seed=seed)


def test_restart_in_every_schedule() -> None:
    """36: three slabs are always the same stale read, four are always right, two are always wrong somehow."""
    name = "36_cursor_restarts_per_tile"
    for seed in range(20):
        assert codes(name, {"tiles": 2, "slabs": 3}, seed=seed) == ["D208", "D213"]
        assert codes(name, {"tiles": 2, "slabs": 4}, seed=seed) == []
        assert codes(name, {"tiles": 3, "slabs": 2}, seed=seed)


def test_leak_is_unsafe_over_a_grid_of_tiles() -> None:
    """37: single sizes pass; who speaks for all sizes must look at slots + 1 tiles (docs/verification.md 1.3)."""
    name = "37_tail_release_missing"
    verdict = {n: codes(name, {"tiles": n}) for n in range(1, 7)}
    assert [n for n, found in verdict.items() if found] == [4, 5, 6]
    assert any(verdict.values())


@pytest.mark.parametrize("name", [n for n, r in TABLE.items() if r.verdict != "safe" and not r.sizes])
def test_findings_say_what_and_where(name: str) -> None:
    """Each finding names its place and gives a witness or a way out."""
    k = kernel(name)
    for d in check(k, arguments(k), ctas=TABLE[name].ctas):
        assert d.message and (d.facts or d.witness)
        assert d.witness or d.help
