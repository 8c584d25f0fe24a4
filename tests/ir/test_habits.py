"""Each habit of another language has its own code, and its fix leaves a clean text."""

from __future__ import annotations

import pytest

from cake.diagnostics.fixes import apply_fix, apply_fixes, verify_fixes
from cake.ir.parser import parse_all

HEAD = """\
kernel k(x: f32[M, N], table: i32[M], out y: f32[M, N]) for sm_90a:
    smem half: f32[64]
    pipeline ab[2] load -> math:
        a: f32[64, 64]
    do math as w:
        acc: f32[64, 64] frag
        with ab.fill() as s:
            pass
        h = ab.wait()
"""

# (line, code, line after the fix or None where the rewrite is the author's)
HABITS = [
    ("acc += 1.0", "S101", "acc = acc + 1.0"),
    ("acc -= a + b", "S101", "acc = acc - (a + b)"),
    ("acc += a + b", "S101", "acc = acc + a + b"),
    ("acc += a if b else c", "S101", None),
    ("acc *= a or b", "S101", "acc = acc * (a or b)"),
    ("acc //= f(a + b)", "S101", "acc = acc // f(a + b)"),
    ("acc ^= 1", "S101", None),
    ("y[0, 1] += 1.0", "S101", None),
    ("acc = h.a @ h.a", "S102", None),
    ("acc = acc - top[:, None]", "S103", "acc = acc - top"),
    ("acc = acc - top[None]", "S103", "acc = acc - top"),
    ("acc = acc - top[3, None]", "S103", None),
    ("ok = (a < b) & (c < d)", "S104", "ok = (a < b) and (c < d)"),
    ("ok = a<b|c<d", "S104", "ok = a<b or c<d"),
    ("ok = a && b", "S104", "ok = a and b"),
    ("ok = ~(a < b)", "S104", "ok = not (a < b)"),
    ("ok = !b", "S104", "ok = not b"),
    ("ok = f(!b)", "S104", "ok = f(not b)"),
    ("ok = 0 <= i < n", "S105", "ok = 0 <= i and i < n"),
    ("ok = a < b + 1 <= c == d", "S105", "ok = a < b + 1 and b + 1 <= c and c == d"),
    ("m = sum(acc, 1)", "S106", "m = sum(acc, axis=1)"),
    ("m = argmax(q, -1)", "S106", "m = argmax(q, axis=1)"),
    ("m = max(acc, 1)", "S106", "m = max(acc, axis=1)"),
    ("m = max(f32(acc), -1)", "S106", "m = max(f32(acc), axis=1)"),
    ("m = sum(acc, dim=1)", "S106", "m = sum(acc, axis=1)"),
    ("m = sum(acc, axis=1, keepdim=True)", "S106", None),
    ("acc = load(x)", "S107", None),
    ("acc = load(half)", "S107", None),
    ("acc = load(h.a)", "S107", None),
    ("acc = zeros((64, 128), dtype=f32)", "S108", "acc: f32[64, 128] frag = 0.0"),
    ("acc = torch.zeros(64, 128, dtype=torch.bfloat16)", "S108", "acc: bf16[64, 128] frag = 0.0"),
    ("acc = np.ones([64, BN])", "S108", "acc: f32[64, BN] frag = 1.0"),
    ("acc = full((64, 128), 3.0)", "S108", None),
    ("q = f(zeros(3))", "S108", None),
    ("elect()", "S109", None),
    ("ok = cute.arch.elect_one()", "S109", None),
    ("ab.acquire()", "S110", None),
    ("ab.producer_commit(state)", "S110", None),
    ("mbarrier_wait(bar)", "S110", None),
    ("__syncthreads()", "S110", None),
    ("phase = 0", "S111", None),
    ("full_phase = 1 - full_phase", "S111", None),
    ("parity: i32 = 0", "S111", None),
    ("q = ab.wait(0)", "S111", None),
    ("f(parity=0)", "S111", None),
    ("while a < b:\n            pass", "S112", None),
    ("while True:\n            acc += 1.0", "S112", None),
    ("break", "S113", None),
    ("continue", "S113", None),
    ("if a: continue", "S113", None),
    ("if a: return", "S115", None),
    ("if a is None: b = 1", "S010", None),
    ("def f(a):\n            pass", "S114", None),
    ("class A:\n            pass", "S114", None),
    ("return", "S115", None),
    ("return acc", "S115", None),
    ('a = "text"', "S116", None),
    ("a = f'text {acc}'", "S116", None),
    ('"""Docs\n        over lines."""', "S116", None),
    ("a = None", "S117", None),
    ("a = load(x[0, 1], other=None)", "S117", None),
    ("a = lambda b: b", "S118", None),
    ("a = b if c else d", "S119", "a = where(c, b, d)"),
    ("f(a=b if c else d)", "S119", "f(a=where(c, b, d))"),
    ("y[0] = 1", "S120", None),
    ("a = b ** 2", "S121", None),
    ("a = b << 2", "S122", None),
    ("a = b ^ 1", "S122", None),
    ("a = (b := 1)", "S123", None),
    ("import math", "S124", None),
    ("from a import b", "S124", None),
    ("assert a", "S124", None),
    ("raise a", "S124", None),
    ("a = 1; b = 2", "S125", None),
    ("a = threadIdx.x", "S126", None),
    ("a = tl.program_id(0)", "S126", None),
    ("a = acc.sum(axis=1)", "S127", "a = sum(acc, axis=1)"),
    ("a = acc.to(bf16)", "S127", "a = bf16(acc)"),
    ("a = acc.float()", "S127", "a = f32(acc)"),
    ("a = 2×b", "S003", "a = 2*b"),
    ("ok = a ≤ b", "S003", "ok = a <= b"),
]


def source(line: str) -> str:
    return f"{HEAD}        {line}\n        done = 1\n"


@pytest.mark.parametrize(("line", "code", "fixed"), HABITS, ids=[line for line, _, _ in HABITS])
def test_habit(line: str, code: str, fixed: str | None) -> None:
    text = source(line)
    parsed, found = parse_all(text)
    assert parsed is None
    primary = [d for d in found if d.code == code]
    assert primary, found
    assert primary[0].help or code == "S003"
    assert primary[0].span is not None and primary[0].span.line == 10
    if fixed is not None:
        assert {d.code for d in found} == {code}
        result, count = apply_fixes(text, found)
        assert count == len(found)
        assert result == source(fixed)
        assert parse_all(result)[1] == []
    else:
        assert primary[0].fix is None or line == "acc += a if b else c"


def test_every_habit_of_the_language_is_here() -> None:
    assert {code for _, code, _ in HABITS if code > "S100"} == {f"S{i}" for i in range(101, 128)}


@pytest.mark.parametrize(
    "line",
    [
        "acc = acc * 2.0",
        "m = max(w, 1)",
        "m = max(acc, 0.0)",
        "m = max(acc, 0)",
        "m = max(1, 2)",
        "m = sum(acc, axis=1)",
        "q = load(table[w])",
        "q = load(half[cols(acc)])",
        "q = load(t.x)",
        "tma.store.wait(keep=1)",
        "wgmma.wait(acc)",
        "tcgen05.wait(acc)",
        "atomic.max(x[0, 0], 1.0)",
        "fence.async()",
        "emphasis = 1",
        "q = h.a[:, 0 : 8].T",
        "ok = a < b and c < d",
        "match = 1",
        "assert_ = 1",
        "print = 1",
    ],
)
def test_what_is_no_habit(line: str) -> None:
    assert parse_all(source(line))[1] == []


def test_shadowed_tensor() -> None:
    """A local that is called like a parameter is not the parameter."""
    assert parse_all(source("half = h.a[0 : 4, cols(acc)]\n        v = load(half)"))[1] == []


def test_fixes_are_checked_again() -> None:
    text = source("acc += 1.0\n        acc = b if acc & c else d")
    found = verify_fixes(text, parse_all(text)[1], lambda t: parse_all(t)[1])
    verified = {d.code: d.fix.verified for d in found if d.fix}
    assert verified == {"S101": True, "S104": True, "S119": True} or verified == {
        "S101": True,
        "S104": True,
        "S119": False,
    }


def test_fixes_do_not_move_other_text() -> None:
    text = source("acc += 1.0  # why")
    (found,) = parse_all(text)[1]
    assert found.fix is not None
    assert apply_fix(text, found.fix) == source("acc = acc + 1.0  # why")
