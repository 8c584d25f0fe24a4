"""Verdicts on the examples (at several points of their search sets), the kernels of the language's specification and the
litmus programs, and what a verdict says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cake.cache import Cache
from cake.compiler import check_path, check_text, expand_file, expand_text
from cake.diagnostics import CakeError
from cake.diagnostics.codes import all_codes, explain
from cake.verify import Verdict, verify
from cake.verify.engine import BUDGETS
from cake.verify.grid import waits
from cake.verify.stamps import stamp_of
from cake.verify.store import decide
from cake.verify.verdict import PROVED
from tests.litmus.catalogue import kernel, verdicts
from tests.verify.faults import surface
from tests.verify.loops import Loops, at

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SPECIFICATION = ROOT / "tests" / "ir" / "examples"

POINTS: list[tuple[Path, str | None, dict[str, Any], bool]] = [
    (EXAMPLES / "gemm.cake", None, {}, True),
    (EXAMPLES / "gemm.cake", None, {"BN": 128, "STAGES": 3, "GROUP": 1}, True),
    (EXAMPLES / "gemm_pingpong.cake", None, {"STAGES": 3}, True),
    (EXAMPLES / "rmsnorm.cake", None, {}, True),
    (EXAMPLES / "rmsnorm.cake", None, {"ROWS": 4, "COLS": 1024}, True),
    (EXAMPLES / "softmax.cake", "softmax", {}, True),
    (EXAMPLES / "softmax.cake", "softmax_long", {"COLS": 1024}, True),
    (EXAMPLES / "attention.cake", None, {}, False),
    (EXAMPLES / "attention.cake", None, {"CAUSAL": False, "D": 64, "BN": 176, "LSE": True, "HG": 1}, False),
    (SPECIFICATION / "kda.cake", None, {}, True),
    (SPECIFICATION / "decode.cake", "decode_part", {"Z": 1, "G": 1}, True),
    (SPECIFICATION / "decode.cake", "decode_combine", {}, True),
    (SPECIFICATION / "kmeans.cake", "half_norms", {}, True),
    (EXAMPLES / "kmeans.cake", "assign", {"WGS": 2, "D": 64}, True),
]
"""File, kernel, constants, and whether all trip counts are proved. Attention has two counts that vary independently."""


@pytest.mark.parametrize(("path", "name", "constants", "proved"), POINTS)
def test_right_kernels(path: Path, name: str | None, constants: dict[str, Any], proved: bool) -> None:
    budget = BUDGETS["full"] if proved else replace(BUDGETS["full"], launches=1.0)  # of launches that show no more
    verdict = verify(expand_file(path, kernel=name, constants=constants), budget=budget)
    assert verdict.status == "safe", verdict.diagnostics
    assert verdict.proved == proved, verdict.notes
    assert verdict.claim == PROVED if proved else verdict.claim.startswith("checked up to")
    assert verdict.notes and verdict.runs > 0


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.cake")), ids=lambda p: p.stem)
def test_examples_pass_the_check(path: Path) -> None:
    assert [d.message for d in check_path(path, verify="quick")] == []


@pytest.mark.parametrize("name", verdicts())
def test_litmus(name: str) -> None:
    """The suite's verdict over all launch values. A verdict also asks what the words that CTAs wait for begin with (M407),
    which the programs, being about order, do not say."""
    row = verdicts()[name]
    program = kernel(name)
    verdict = verify(program, ctas=row.ctas)
    words = {"M407"} if waits(program) else set()
    if words and not row.codes:
        assert set(verdict.codes) == words, verdict.codes
    else:
        assert (verdict.status == "safe") == (row.verdict == "safe"), verdict.codes
    if row.codes and not row.sizes:
        assert set(verdict.codes) == set(row.codes) | words


@pytest.mark.parametrize("code", [c for c in all_codes() if explain(c).source == "verify" and explain(c).fail])
def test_pages_of_the_verifier(code: str) -> None:
    page = explain(code)
    assert page.fail is not None and page.good is not None
    assert code in {d.code for d in check_text(page.fail, verify="quick")}
    assert [d.code for d in check_text(page.good, verify="quick")] == []


@pytest.mark.parametrize("code", [code for code in all_codes() if explain(code).litmus])
def test_pages_with_litmus_programs(code: str) -> None:
    bad, good = explain(code).litmus
    rows = verdicts()
    assert code in verify(kernel(bad), ctas=rows[bad].ctas).codes
    assert code not in verify(kernel(good), ctas=rows[good].ctas).codes


def test_diagnostics_are_few_and_say_everything() -> None:
    found = verify(kernel("30a_leader_release_no_collective")).diagnostics
    assert [d.code for d in found] == ["P106", "D204"]  # protocol before data
    for d in found:
        assert d.contract and d.witness and d.witness[-1].startswith("launch: ") | ("cta" in d.witness[-1])


def test_a_violated_condition_gets_a_failing_schedule() -> None:
    """P105 is no failure in itself: the witness ends with a run that goes wrong."""
    (d,) = verify(kernel("32_arrive_then_announce")).diagnostics
    assert any("reads what nothing has written" in line for line in d.witness)


UNKNOWN = """\
kernel k(n: i32[M], inout s: i32[M], out y: f32[M, 128]) for sm_90a:
    tiles once:
        r in M

    role row: warps 4

    do row:
        v: f32[1, 128] spread(1)
        for t in tiles:
            c = load(s[t.r])
            v = 1.0
            if c > 0:
                v = 2.0
            store(y[t.r, cols(v)], v)
"""


def test_control_by_data_that_may_change() -> None:
    verdict = verify(expand_text(UNKNOWN))
    assert (verdict.status, verdict.codes) == ("unknown", ("U901",))
    assert verify(expand_text(UNKNOWN.replace("s[t.r]", "n[t.r]"))).status == "safe"


# ---- what becomes of a verdict ---------------------------------------------------------------------------------------


def test_stamps() -> None:
    safe = Verdict(status="safe", claim="checked up to 3 launches")
    assert (stamp_of(safe).proved, stamp_of(safe).unproved, stamp_of(safe).claim) == (False, (), safe.claim)
    assert stamp_of(Verdict(status="safe", claim=PROVED)).proved
    unknown = verify(expand_text(UNKNOWN))
    with pytest.raises(CakeError) as refused:
        stamp_of(unknown)
    assert "--allow U901" in str(refused.value.diagnostics[0].help)
    stamp = stamp_of(unknown, {"U901"})
    assert stamp.unproved == ("U901",) and stamp.reasons[0].startswith("U901 ") and not stamp.proved
    policy = verify(kernel("13_release_without_fence"))
    assert stamp_of(policy, {"F302"}).unproved == ("F302",)
    with pytest.raises(CakeError):
        stamp_of(verify(kernel("02_no_fence")), {"F301"})


def test_verdicts_are_kept(tmp_path: Path) -> None:
    store = Cache(tmp_path)
    expanded = expand_text(surface.FAULTS["missed"].good)
    first = decide(expanded, store=store)
    assert decide(expanded, store=store) == first
    assert decide(expanded, effort="quick", store=store) == first  # full effort answers the quick question too
    other = expand_text(surface.FAULTS["missed"].bad)
    assert decide(other, store=store).status == "unsafe"


def test_quick_effort_claims_less() -> None:
    verdict = verify(Loops(skips=at(17)).kernel(), effort="quick")
    assert verdict.status == "unsafe" or not verdict.proved
    gemm = expand_file(EXAMPLES / "gemm.cake")
    first, again = verify(gemm, effort="quick"), verify(gemm, effort="quick")
    assert first.open and (first.claim, first.runs, first.events) == (again.claim, again.runs, again.events)
    assert not verify(gemm).open


TEAMS = """
kernel double(x: bf16[M, 256], out y: bf16[M, 256]) for sm_90a:
    const TEAMS = {teams}
    const STAGES = {stages}

    tiles persistent:
        r in M

    role load: warps 1
    role row[TEAMS]: warps 1

    pipeline xs[STAGES] load -> one row:
        x: bf16[1, 256]

    do load:
        for t in tiles:
            with xs.fill() as s:
                tma.load(s.x, x[t.r : t.r + 1, 0:256])

    do row as w:
        v: bf16[1, 256] spread(8)
        xs.skip(w)
        for t in tiles[w::TEAMS]:
            s = xs.wait()
            v = load(s.x[0, cols(v)])
            xs.release()
            xs.skip(TEAMS - 1)
            store(y[t.r, cols(v)], v + v)
"""


@pytest.mark.parametrize(("teams", "stages", "safe"), [(4, 6, False), (3, 8, False), (4, 8, True), (3, 6, True)])
def test_stages_that_do_not_divide_among_instances(teams: int, stages: int, safe: bool) -> None:
    """Where instances take rows in turn and a slot changes hands, one comes back to it two phases later and may find the
    parity of the phase before (an H200 faults there). No launch shows it before each has met every slot."""
    for effort in ("quick", "full"):
        verdict = verify(expand_text(TEAMS.format(teams=teams, stages=stages)), effort=effort)
        assert (verdict.status, "P107" in verdict.codes) == (("safe", False) if safe else ("unsafe", True))
