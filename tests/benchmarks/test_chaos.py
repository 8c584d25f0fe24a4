"""The chaos benchmark without a GPU: which mutants are taken, what is stored, how launches are judged, how processes are replaced."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.chaos import choice, device, parents, store
from benchmarks.chaos.choice import Answer, Candidate, Choice
from benchmarks.chaos.device import agrees
from benchmarks.chaos.observed import observed
from benchmarks.chaos.pool import ENDED, LEAVES, READY, Pool
from benchmarks.chaos.running import Record, chosen, summarise, table
from benchmarks.chaos.store import Index, Item
from cake.codegen import nvrtc
from cake.diagnostics import CakeError
from cake.machine import run
from cake.runtime import errors
from tests.mutation.classes import mutants
from tests.mutation.judge import verifier
from tests.mutation.rings import Ring, ring

try:
    nvrtc.bindings()
    NVRTC = True
except CakeError:
    NVRTC = False


def case(name: str) -> parents.Case:
    return next(c for c in parents.synthetic() if c.name == name)


# ---- what can be seen -------------------------------------------------------------------------------------------------


def test_observed_kernels_show_every_fill() -> None:
    """Each iteration reads a line of its own, and the line goes to memory; the verdict is that of the parent."""
    ring_case = case("tma_load_s2_l0_w1x1")
    assert verifier(ring_case.parent, ring_case.kernel).kind == "accepted"
    seen = run(ring_case.kernel, ring_case.arguments).outputs["seen0"]
    fills = [row for row in seen if row.any()]
    assert len(fills) == 15 and len({row.tobytes() for row in fills}) == 15
    source = ring_case.arguments["src"]
    assert all(any((row == line).all() for line in source) for row in fills)


def test_observed_kernels_show_stale_reads() -> None:
    """A reader one slot off gets another fill: the outputs say so."""
    ring_case = case("tma_load_s3_l0_w1x1")
    want = run(ring_case.kernel, ring_case.arguments).outputs
    wrong = next(m for m in mutants(ring_case.kernel, (11,)) if "op src -1" in m.what)
    assert not choice.same(run(wrong.kernel, ring_case.arguments).outputs, want)


def test_stores_of_constants_become_numbers() -> None:
    out = run(k := observed(ring(Ring(2, fill="stores", warps=2))), parents._values(k)).outputs["seen0"]
    assert len(np.unique(out)) > 15 * 64


def test_persistent_parents_walk_several_tiles() -> None:
    for c in parents.small():
        assert c.kernel.schedule == "once" or run(c.kernel, c.arguments, ctas=64).clusters == parents.FEW


# ---- which are taken --------------------------------------------------------------------------------------------------


def test_candidates_come_in_a_fixed_order_from_all_parents() -> None:
    found = {n: list(mutants(ring(r))) for n, r in (("a", Ring(1)), ("b", Ring(2)), ("c", Ring(3, lag=1)))}
    ordered = choice.order(found, 1)
    assert ordered == choice.order(dict(reversed(found.items())), 1) != choice.order(found, 2)
    for number, candidates in ordered.items():
        assert {c.case for c in candidates[:3]} == {c for c, ms in found.items() if any(m.number == number for m in ms)}
    first, second = list(choice.rounds(ordered))[:2]
    assert [c.number for c in first] == sorted(ordered) and {c.number for c in second} <= set(ordered)


def answer(n: int, kind: str, skeleton: str, refused: str = "") -> Answer:
    candidate = Candidate("k", 1, n)
    item = None if refused else Item(candidate.name, "k", kind, 1)
    return Answer(candidate, kind, [], skeleton, item, refused)


def test_quotas_repetitions_and_refusals(tmp_path: Path) -> None:
    made = Choice(2, tmp_path)
    made.know("k", "parent")
    for n, (kind, skeleton, refused) in enumerate(
        [
            ("unsafe", "parent", ""),
            ("unsafe", "x", ""),
            ("unsafe", "x", ""),
            ("safe", "y", "G004: no"),
            ("unsafe", "z", ""),
            ("unsafe", "v", ""),
            ("safe", "w", ""),
        ]
    ):
        made.take(answer(n, kind, skeleton, refused))
    assert [i.name for i in made.items["unsafe"]] == ["01-k-1", "01-k-4"] and len(made.items["safe"]) == 1
    assert made.open == {"safe"} and [r["why"] for r in made.refused] == ["G004: no"]
    assert made.left == {"repeated": 2, "refused": 1, "unsafe, not needed": 1}


@pytest.mark.skipif(not NVRTC, reason="NVRTC is not installed")
def test_a_mutant_is_judged_built_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring_case = case("tma_load_s2_l0_w1x1")
    found = list(mutants(ring_case.kernel, (3, 44)))
    monkeypatch.setattr(choice, "_CASES", {ring_case.name: ring_case})
    monkeypatch.setattr(choice, "_MUTANTS", {ring_case.name: found})
    broken = next(n for n, m in enumerate(found) if m.number == 3)
    harmless = next(n for n, m in enumerate(found) if m.what.startswith("fence before"))
    both = frozenset(("safe", "unsafe"))
    items = []
    for position, kind in ((broken, "unsafe"), (harmless, "safe")):
        candidate = Candidate(ring_case.name, found[position].number, position)
        assert choice.judge((candidate, frozenset(), str(tmp_path), True)).item is None, "not wanted"
        got = choice.judge((candidate, both, str(tmp_path), True))
        assert got.kind == kind and got.item is not None and not got.refused
        items.append(got.item)
    entry = store.save_case(tmp_path, ring_case, choice.outputs_of(ring_case, ring_case.kernel))
    Index(items, {ring_case.name: entry}).save(tmp_path)
    known = store.index(tmp_path)
    assert [i.expect for i in known.items] == ["unsafe", "safe"] and known.cases[ring_case.name]["outputs"] == ["seen0"]
    artifact, own = store.load_item(tmp_path, known.items[0].name)
    assert artifact.chaos == 0 and artifact.kernel == found[broken].kernel and own == {}
    arrays = store.load_case(tmp_path, ring_case.name)
    assert arrays["in/src"].dtype == np.uint32 and arrays["out/seen0"].shape == (32, 32)


# ---- how launches are judged ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "tolerance", "right"),
    [
        ([1.0, -2.0, 4.0], 0.0, True),
        ([1.0, -2.0, 4.0001], 0.0, False),
        ([1.0, -2.0, 4.0001], 2**-8, True),
        ([1.0, -2.0, 4.1], 2**-8, False),
        ([1.0, float("nan"), 4.0], 2**-8, False),
    ],
)
def test_floats(found: list[float], tolerance: float, right: bool) -> None:
    want = store.bits(np.array([1.0, -2.0, 4.0], np.float32))
    assert agrees(store.bits(np.array(found, np.float32)), want, "f32", tolerance) is right


def test_zeros_nans_and_integers() -> None:
    nan, quiet = np.array([0x7FC0, 0x8000], np.uint16), np.array([0xFFFF, 0x0000], np.uint16)
    assert agrees(nan, quiet, "bf16", 0.0), "NaN is NaN, and zeros are equal"
    assert not agrees(nan, quiet, "i8", 0.0)
    assert not agrees(np.array([0xFFFF], np.uint16), np.array([0x3F80], np.uint16), "bf16", 1.0), "poison shows"


class Gpu:
    """Host memory in place of a device; each launch does what its seed says."""

    stream = 7

    def __init__(self) -> None:
        self.poisoned: list[int] = []
        self.reseeded = 0

    def room(self, shape: list[int], dtype: str) -> Any:
        return np.empty(shape, np.uint32)

    def put(self, tensor: Any, data: Any) -> None:
        tensor[...] = data

    def poison(self, tensor: Any) -> None:
        tensor[...] = 0xFFFFFFFF
        self.poisoned.append(self.reseeded)

    def ready(self) -> None: ...

    def finished(self, seconds: float) -> bool:
        return self.reseeded != 4

    def get(self, tensor: Any) -> Any:
        return tensor.copy()


def test_outcomes_of_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are poisoned and inputs put back before each launch; a hang is the last, and so is a trap."""
    gpu = Gpu()
    arrays = {"in/x": np.arange(4, dtype=np.uint32), "out/y": np.arange(4, dtype=np.uint32)}
    monkeypatch.setattr(store, "load_item", lambda directory, name: (None, {}))
    monkeypatch.setattr(store, "load_case", lambda directory, name: arrays)

    class Kernel:
        def __init__(self, artifact: object) -> None: ...

        def reseed(self, seed: int) -> None:
            gpu.reseeded = seed

        def __call__(self, x: Any, y: Any, factor: int, stream: int) -> None:
            assert (x == arrays["in/x"]).all() and (y == 0xFFFFFFFF).all() and (factor, stream) == (1, 7)
            if gpu.reseeded != 2:
                y[...] = x
            x[...] = 0  # a kernel that writes its input
            if gpu.reseeded == 9:
                raise errors.error("R018", "The launch failed.", "look", "an illegal address")

    monkeypatch.setattr(device, "LoadedKernel", Kernel)
    entry = {"dtypes": {"x": "f32", "y": "f32"}, "shapes": {"x": [4], "y": [4]}, "outputs": ["y"]}
    entry |= {"scalars": {"factor": 1}, "tolerance": {}}
    item = Item("a", "k", "unsafe", 1)

    def launched(seeds: range) -> list[tuple[int, str, str]]:
        return list(device.outcomes(gpu, tmp_path, item, entry, seeds))  # type: ignore[arg-type]

    assert launched(range(1, 9)) == [(1, "right", ""), (2, "wrong", "wrong: y"), (3, "right", ""), (4, "hang", "")]
    assert launched(range(9, 12)) == [(9, "trap", "an illegal address")]


def record(name: str, number: int, expect: str, launches: str) -> Record:
    return Record(Item(name, "k", expect, number), launches)


def test_summary() -> None:
    records = [
        record("a", 1, "unsafe", "rrw"),
        record("b", 1, "unsafe", "h"),
        record("c", 1, "safe", "rrr"),
        record("d", 2, "unsafe", "rrr"),
        record("e", 2, "safe", "rrt"),
        record("f", 0, "safe", "rrr"),
        record("g", 2, "unsafe", ""),
    ]
    s = summarise(records)
    assert (s["unsafe"], s["detected"], s["detected_by"]) == (3, 2, {"wrong": 1, "hang": 1, "right": 1})
    assert (s["failures"], s["undetected"], s["not_run"]) == (["e"], ["d"], ["g"])
    assert [r.first for r in records[:3]] == [3, 1, None]
    lines = table(records).splitlines()
    assert lines[2].startswith("| no mutant |") and lines[-1].startswith(
        "| **all** | 3 | 1 | 1 |  | 1 | 1 | 3 | 1 | 1 |"
    )


def test_order_of_running() -> None:
    items = [
        Item(n, "k", e, c)
        for n, e, c in (("u1", "unsafe", 1), ("u2", "unsafe", 1), ("s1", "safe", 1), ("k", "safe", 0))
    ]
    assert [items[n].name for n in chosen(items, [])] == ["k", "u1", "s1", "u2"]
    assert [items[n].name for n in chosen(items, ["u", "s"])] == ["u1", "s1", "u2"]


# ---- processes --------------------------------------------------------------------------------------------------------


def worker(pipe: Any, kinds: list[str]) -> None:
    """Items that answer, hang, leave or die."""
    while True:
        pipe.send(READY)
        number = pipe.recv()
        pipe.send((number, os.getpid()))
        kind = kinds[number]
        if kind == "hang":
            time.sleep(60)
        if kind == "die":
            os._exit(1)
        if kind == "leave":
            pipe.send(LEAVES)
            time.sleep(0.3)  # the driver takes its time to end a context
            os._exit(3)
        pipe.send((number, "done"))


def test_processes_are_replaced() -> None:
    """Every item is run once, whatever others do to their processes; what hangs or dies is said to have ended."""
    kinds = ["right", "hang", "die", "right", "leave", "leave", "right", "die", "right"]
    pool = Pool(worker, (kinds,), active=2, spare=2, silence=1.0)
    said: dict[int, list[Any]] = {n: [] for n in range(len(kinds))}
    for number, message in pool.run(list(said), seconds=60):
        said[number].append(message)
    for number, kind in enumerate(kinds):
        first, *rest = said[number]
        assert first[0] == number
        assert rest == {"right": [(number, "done")], "leave": []}.get(kind, [ENDED])
    assert pool.lost == 5


def stillborn(pipe: Any) -> None:
    """A worker that finds no device."""
    os._exit(1)


def test_processes_that_never_start() -> None:
    with pytest.raises(RuntimeError, match="no worker process starts"):
        list(Pool(stillborn, (), active=1, spare=1).run([0], seconds=60))


def test_nothing_begins_after_the_time_is_up() -> None:
    pool = Pool(worker, (["right"] * 3,), active=1, spare=0)
    assert list(pool.run([0, 1, 2], seconds=0)) == []


def test_own_references_travel(tmp_path: Path) -> None:
    item = replace(Item("a", "k", "safe", 1), own=True)
    Index([item], {}).save(tmp_path)
    assert store.index(tmp_path).items == [item]
