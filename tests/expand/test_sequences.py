"""Sequences: what they expand to, and what is said where steps and kernels do not fit."""

from __future__ import annotations

from cake.compiler import check_text, expand_steps, select
from cake.ir.parser import parse
from cake.ir.sequences import Sequence
from tests.expand.cases import Case, check, parametrised

KERNELS = """
const D: {32, 64} = 64

kernel scale(x: f32[M, D], by: f32, out y: f32[M, D]) for sm_80, sm_90a:
    tiles once:
        m in M
    role row: warps 1
    do row:
        v: f32[1, D] spread(1)
        for t in tiles:
            v = load(x[t.m, cols(v)])
            store(y[t.m, cols(v)], v * by)

kernel total(x: f32[M, D], out s: f32[M]) for sm_90a:
    const WARPS: {1, 2} = 1
    where M % 2 == 0
    tiles once:
        m in M
    role row: warps WARPS
    do row:
        v: f32[1, D] spread(1)
        for t in tiles:
            v = load(x[t.m, cols(v)])
            store(s[t.m], sum(v, axis=1))
"""
STEPS = """
    temp y: f32[M, D]
    scale(x, by, y)
    total(y, s)
"""


def sequence(steps: str = STEPS, params: str = "x: f32[M, D], by: f32, out s: f32[M]") -> str:
    """Two kernels and a sequence of them."""
    return f"{KERNELS}\nsequence both({params}):\n{steps.strip(chr(10))}\n"


def expanded(text: str, **constants: int) -> Sequence:
    """The expanded sequence of a text."""
    file = parse(text)
    chosen = select(file, None)
    return expand_steps(file, chosen, constants)  # type: ignore[arg-type]


def test_expansion() -> None:
    """Workspace, arguments by name, guards in the sequence's terms, a target that all kernels have."""
    text = sequence()
    assert check_text(text) == []
    found = expanded(text, D=32)
    assert found.target == "sm_90a" and found.constants["D"] == 32
    assert [(w.name, w.dtype, w.zero) for w in found.temps] == [("y", "f32", False)]
    first, second = found.steps
    assert first.tensors == {"x": "x", "y": "y"} and set(first.scalars) == {"by"}
    assert second.tensors == {"x": "y", "s": "s"} and second.kernel.constants["WARPS"] == 1
    assert [g.text for g in found.guards] == ["M % 2 == 0 (of total)"]
    assert Sequence.model_validate_json(found.model_dump_json()) == found


def test_constants() -> None:
    """A keyword argument fixes a constant for one step; the caller chooses the others for every kernel that has them."""
    fixed = expanded(sequence(STEPS.replace("total(y, s)", "total(y, s, WARPS=2)")))
    assert fixed.steps[1].kernel.constants["WARPS"] == 2
    assert expanded(sequence(), WARPS=2).steps[1].kernel.constants["WARPS"] == 2


def test_scalars_are_expressions() -> None:
    """A step passes numbers, scalars and expressions of them."""
    found = expanded(sequence(STEPS.replace("scale(x, by,", "scale(x, 2.0 * by,")))
    assert str(found.steps[0].scalars["by"]).count("by") == 1


def step(old: str, new: str, **more: str) -> str:
    """The good sequence with one line changed."""
    assert old in STEPS
    return sequence(STEPS.replace(old, new), **more)


CASES = [
    Case("unknown kernel", "T004", step("total(y, s)", "totals(y, s)  # here"), ("totals", "total"), alone=False),
    Case("count", "T003", step("total(y, s)", "total(y)  # here"), ("2 arguments", "total(x, s)"), alone=False),
    Case("unknown name", "T001", step("total(y, s)", "total(z, s)  # here"), ("`z`",), alone=False),
    Case("scalar for a tensor", "T011", step("total(y, s)", "total(by, s)  # here"), ("tensor",), alone=False),
    Case("tensor for a scalar", "T011", step("scale(x, by, y)", "scale(x, x, y)  # here"), ("by",), alone=False),
    Case(
        "dtype",
        "T005",
        step("temp y: f32[M, D]", "temp y: bf16[M, D]")
        .replace("total(y, s)", "total(y, s)")
        .replace("scale(x, by, y)", "scale(x, by, y)  # here"),
        ("bf16",),
        alone=False,
    ),
    Case(
        "axes",
        "T006",
        step("temp y: f32[M, D]", "temp y: f32[M]").replace("scale(x, by, y)", "scale(x, by, y)  # here"),
        ("axes",),
        alone=False,
    ),
    Case(
        "extent",
        "T006",
        step("temp y: f32[M, D]", "temp y: f32[M, 2 * D]").replace("scale(x, by, y)", "scale(x, by, y)  # here"),
        ("axis 1",),
        alone=False,
    ),
    Case(
        "other dim",
        "T006",
        step(
            "scale(x, by, y)", "scale(x, by, y)  # here", params="x: f32[M, D], z: f32[N], by: f32, out s: f32[M]"
        ).replace("temp y: f32[M, D]", "temp y: f32[N, D]"),
        ("axis 0",),
        alone=False,
    ),
    Case("writes an input", "O504", step("total(y, s)", "total(y, s)\n    scale(y, by, x)  # here"), ("input",)),
    Case(
        "read before written",
        "D209",
        step("scale(x, by, y)\n    ", "").replace("total(y, s)", "total(y, s)  # here"),
        ("no step",),
    ),
    Case("twice", "D203", step("scale(x, by, y)", "scale(x, by, y)\n    scale(y, by, y)  # here"), ("twice",)),
    Case(
        "output unwritten",
        "O501",
        step("    total(y, s)\n", "", params="x: f32[M, D], by: f32, out s: f32[M]"),
        ("`s`",),
    ),
    Case("constant of no kernel", "T001", step("total(y, s)", "total(y, s, WARP=2)  # here"), ("WARPS",), alone=False),
    Case("value outside the set", "T009", step("total(y, s)", "total(y, s, WARPS=4)"), ("4",), alone=False),
    Case(
        "attribute", "T015", step("temp y: f32[M, D]", "temp y: f32[M, D] swizzle(128)  # here"), ("zero",), alone=False
    ),
    Case("scalar workspace", "T015", step("temp y: f32[M, D]", "temp y: f32  # here"), ("shape",), alone=False),
    Case(
        "twice declared", "T002", step("temp y: f32[M, D]", "temp y: f32[M, D]\n    temp x: f32[M]  # here"), ("`x`",)
    ),
]


@parametrised(CASES)
def test_misuse(case: Case) -> None:
    check(case)


def test_zero_workspace_may_be_read_first() -> None:
    text = sequence(STEPS.replace("temp y: f32[M, D]", "temp y: f32[M, D] zero").replace("scale(x, by, y)\n    ", ""))
    assert check_text(text) == []


def test_kernels_for_different_targets() -> None:
    text = sequence().replace("for sm_80, sm_90a", "for sm_80")
    assert {d.code for d in check_text(text)} == {"T021"}
