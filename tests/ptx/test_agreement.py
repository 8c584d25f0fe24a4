"""What the emitter writes passes: the examples over their search spaces, every form of every operation, other
spellings."""

from __future__ import annotations

import re

import pytest

from cake.codegen import emit
from cake.ir import expanded as x
from cake.ir.expr import Apply, Expr, integer, rewrite
from cake.ptx.check import check
from tests.codegen.forms import FORMS
from tests.codegen.test_forms import FAST
from tests.litmus.catalogue import kernel as litmus
from tests.machine.edit import edit
from tests.ops.table import FORMS as OPERATIONS
from tests.ptx.compiled import compile_kernel, edited, example, findings, needs_nvrtc, ptx_of, source_of

pytestmark = needs_nvrtc

POINTS = [
    ("gemm", None, {}),
    ("gemm", None, {"BN": 128, "STAGES": 6}),
    ("gemm", None, {"BN": 192, "STAGES": 3, "GROUP": 1}),
    ("softmax", "softmax", {}),
    ("softmax", "softmax", {"COLS": 8192, "ROWS": 2, "WARPS": 8}),
    ("softmax", "softmax_long", {}),
    ("rmsnorm", None, {"COLS": 16384, "ROWS": 1, "WARPS": 8, "REGS": 96}),
    ("gemm_cluster", None, {}),
    ("gemm_bias_gelu", None, {}),
    ("batched_gemm", None, {}),
    ("kmeans", "assign", {}),
    ("kmeans", "assign_add", {"D": 64}),
    ("gemm_pingpong", None, {}),
    ("gemm_pingpong", None, {"BN": 192, "STAGES": 3}),
    ("gemm_pingpong", None, {"SPLIT": 2}),  # conditions on a remainder of two values, which the compiler merges
    ("gemm_streamk", None, {}),
    ("knn", "knn_merge", {"TEAM": 8}),  # the warp's number is the start of a later loop's counter
    ("layernorm", None, {}),
    ("attention", None, {}),
    ("attention", None, {"D": 64, "BN": 176, "CAUSAL": False}),
    ("attention", None, {"D": 256, "BN": 80, "Q_STAGES": 1, "LSE": True}),
    ("corpus/softmax_streamed", None, {}),  # two loops over one range: both run or none
]
SYNCHRONISING = ("wgmma", "tma", "matrix", "mma", "barrier", "flags", "scalars", "peer", "across", "atomic", "cp_async")


@pytest.mark.parametrize(("name", "kernel", "constants"), POINTS, ids=lambda v: str(v) if v else "-")
def test_examples(name: str, kernel: str | None, constants: dict[str, int]) -> None:
    made = example(name, kernel, **constants)
    assert check(made, compile_kernel(made)) == []


@pytest.mark.parametrize(
    ("form", "target"),
    [
        pytest.param(name, target, id=f"{name}-{target}", marks=() if name in FAST else pytest.mark.slow)
        for name, (targets, _) in FORMS.items()
        if any(word in name for word in SYNCHRONISING) or name in FAST
        for target in targets
    ],
)
def test_forms(form: str, target: str) -> None:
    kernel = FORMS[form][1](target)
    assert check(kernel, compile_kernel(kernel)) == []


def test_comments_and_names_of_the_source() -> None:
    text = source_of("gemm")
    text = edited(text, r"// release", "// any other words", 0)
    text = edited(text, r"\bab_wait\b", "position", 0)
    text = edited(text, r"\bAB_FULL\b", "FILLED", 0)
    text = edited(text, r"\brole_math\b", "second", 0)
    text = edited(text, r"^#line.*\n", "", 0) if "#line" in text else text
    assert check(example("gemm"), compile_kernel(example("gemm"), text)) == []


def test_comments_and_names_of_the_ptx() -> None:
    text = ptx_of("gemm")
    text = edited(text, r"\$L__BB0_(\d+)", r"$OTHER_\1", 0)
    text = edited(text, r"%r(\d+)", r"%x\1", 0)
    text = edited(text, r"^\s*\.loc.*\n", "", 0)
    text = edited(text, r"// begin inline asm", "// here", 0)
    text = re.sub(r"\bagain\b", "repeat", text)
    assert findings("gemm", text) == []


def test_arithmetic_and_layout_of_the_code_do_not_matter() -> None:
    text = ptx_of("gemm")
    full = example("gemm").barrier("ab.full").offset
    split = rf"\tadd.s32 \t\1, \2, {full - 76};\n\tadd.s32 \t\1, \1, 76;"
    text = edited(text, rf"^\tadd\.s32 \t(%r\d+), (%r\d+), {full};", split)
    text = edited(text, r"^\tbra\.uni \t(\$L__BB0_\d+);", r"\tbra.uni \tHOP;\n\nHOP:\n\tbra.uni \t\1;")
    assert findings("gemm", text) == []


@pytest.mark.parametrize(
    "name",
    [
        "pipeline several producers and consumers",
        "turn of 3",
        "tma.load 2d",
        "mma bf16 16x24x32 A shared B rows pad(8)",
    ],
)
def test_roles_and_gaps(name: str) -> None:
    """Warps that no role has between two roles; barriers numbered by an instance modulo three; odd blocks of mma."""
    made = OPERATIONS[name].kernel
    assert check(made, compile_kernel(made)) == []


def test_a_gap_that_runs_a_role_is_found() -> None:
    """Code in which the warps of no role run the last one does not pass."""
    made = OPERATIONS["pipeline several producers and consumers"].kernel
    source = emit(made)
    test = "else if (warp_id >= 8)\n        role_right"
    assert test in source
    found = check(made, compile_kernel(made, source.replace(test, "else\n        role_right")))
    assert [d.code for d in found] == ["P119"]


APART = ("21_remote_write_cluster_scope", "28_flag_after_full_wait", "38b_a_chain_of_values", "40b_a_value_answered")
INSTRUCTION = r"^.*(?:st\.release\.gpu|ld\.acquire\.gpu|mbarrier\.arrive|fence\.proxy).*\n"


def exchanged(node: x.Stmt) -> x.Stmt:
    """What is under `== 0` comes under `== 1`, and the reverse."""

    def other(e: Expr) -> Expr | None:
        if not isinstance(e, Apply) or e.op != "==" or e.args[1] not in (integer(0), integer(1)):
            return None
        return Apply(op="==", args=(e.args[0], integer(int(e.args[1] == integer(0)))), dtype="bool")

    return node.model_copy(update={"cond": rewrite(node.cond, other)}) if isinstance(node, x.If) else node


@pytest.mark.parametrize("name", APART)
def test_conditions_that_exclude_each_other(name: str) -> None:
    """What each CTA does stands under a condition of its own, and the compiler makes one choice of them. Without an instruction
    that synchronises, or with the CTAs exchanged, it is another program."""
    made = litmus(name)
    ptx = compile_kernel(made)
    assert check(made, ptx) == []
    places = [m.span() for m in re.finditer(INSTRUCTION, ptx, re.MULTILINE)]
    assert places and all(check(made, ptx[:start] + ptx[end:]) for start, end in places)
    assert check(edit(made, exchanged), ptx)
