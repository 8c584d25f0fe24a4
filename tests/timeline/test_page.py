"""Timelines: all of a launch is on the page, once; the finding is where it was found; nothing comes from elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cake.compiler import expand_file, expand_text
from cake.ir import expanded as x
from cake.machine import events as ev
from cake.timeline import timeline
from cake.timeline.edges import edges
from cake.timeline.model import model
from cake.timeline.page import ASSETS, SCRIPTS, embedded
from cake.timeline.recording import Recording, choose, record
from cake.timeline.rings import slots
from cake.timeline.ticks import actors, ticks
from cake.verify import Verdict, verify
from cake.verify.launches import Family
from tests.cli.conftest import ROOT

GEMM = (ROOT / "examples" / "gemm.cake").read_text(encoding="utf-8")
EARLY = GEMM.replace("wgmma.wait(keep=1)", "wgmma.wait(keep=2)")
"""A stage is given back while a wgmma may still read it."""


@cache
def judged(text: str) -> tuple[x.Kernel, Verdict]:
    kernel = expand_text(text, "gemm.cake")
    return kernel, verify(kernel, effort="quick")


@cache
def shown(text: str) -> tuple[Recording, str, dict[str, Any]]:
    """The recording, the page and the data in it."""
    kernel, verdict = judged(text)
    recording = choose(kernel, verdict)
    assert recording is not None
    page = timeline(kernel, verdict, text)
    return recording, page, data_of(page)


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def without(kernel: x.Kernel, role: str, drop: Any) -> x.Kernel:
    """The kernel without the statements of a role that ``drop`` names."""

    def walk(body: tuple[x.Stmt, ...]) -> tuple[x.Stmt, ...]:
        kept: list[x.Stmt] = []
        for node in body:
            if isinstance(node, x.For):
                node = node.model_copy(update={"body": walk(node.body)})
            elif isinstance(node, x.If):
                node = node.model_copy(update={"then": walk(node.then), "orelse": walk(node.orelse)})
            if not drop(node):
                kept.append(node)
        return tuple(kept)

    roles = tuple(r.model_copy(update={"body": walk(r.body)}) if r.name == role else r for r in kernel.roles)
    return kernel.model_copy(update={"roles": roles})


class Balance(HTMLParser):
    """Checks that elements close in the order in which they open."""

    EMPTY = {"meta", "br", "link", "input"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag


@pytest.mark.parametrize("text", [GEMM, EARLY], ids=["safe", "unsafe"])
def test_html_is_well_formed_and_needs_nothing(text: str) -> None:
    page = shown(text)[1]
    parser = Balance()
    parser.feed(page)
    parser.close()
    assert parser.open == [] and parser.seen.count("svg") == 1 and parser.seen.count("script") == 2
    assert page.startswith("<!DOCTYPE html>")
    for pattern in (r"https?:", r"\bsrc=", r"\bhref=", r"url\((?!#)", r"@import", r"\bfetch\(", r"<link"):
        assert re.search(pattern, page) is None, pattern


@pytest.mark.parametrize("text", [GEMM, EARLY], ids=["safe", "unsafe"])
def test_every_event_is_there_once(text: str) -> None:
    recording, _, data = shown(text)
    assert [row[0] for row in data["events"]] == [e.id for e in recording.batch.events]
    assert max(Counter(row[0] for row in data["events"]).values()) == 1 and data["cut"] is None
    assert data["roles"] == ["load", "math"] and data["rings"] == ["ab", "cs"]
    assert {a["role"] for a in data["agents"]} >= {"load", "math"}
    assert len(data["agents"]) == 2 * 2 * 12  # two CTAs of twelve warps, two halves each
    issued = [e for e in recording.batch.events if isinstance(e, ev.Issue)]
    assert [row[0] for row in data["ops"]] == [e.op.id for e in issued]
    assert all(row[6] is not None and row[7] is not None for row in data["ops"])


def test_the_finding_is_shown_with_its_events() -> None:
    verdict = judged(EARLY)[1]
    recording, page, data = shown(EARLY)
    finding = data["finding"]
    assert (
        finding["code"] == verdict.diagnostics[0].code == "D202"
        and finding["message"] == verdict.diagnostics[0].message
    )
    assert f"launch: {data['launch']}" in verdict.diagnostics[0].witness
    events = {e.id: e for e in recording.batch.events}
    first, then = events[finding["first"]], events[finding["then"]]
    assert isinstance(first, ev.Issue) and first.op.op == "wgmma"
    assert isinstance(then, ev.Issue) and then.op.op == "tma.load"
    assert finding["unordered"] and first.id < then.id
    assert "the tma.load of load warp 0" in page


def test_a_deadlock_shows_who_waits_for_ever() -> None:
    kernel = without(expand_file(ROOT / "examples" / "gemm.cake"), "math", _first_release())
    verdict = verify(kernel, effort="quick")
    assert verdict.codes[0] == "P101"
    recording = choose(kernel, verdict)
    assert recording is not None and recording.stopped
    finding = model(kernel, verdict, recording, None)["finding"]
    events = {e.id: e for e in recording.batch.events}
    waits = [events[i] for i in finding["blocked"]]
    assert waits and all(isinstance(e, ev.Wait) for e in waits)
    assert {e.barrier[1] for e in waits if isinstance(e, ev.Wait)} == {"ab.empty", "ab.full"}
    assert finding["then"] in finding["blocked"]


def _first_release() -> Any:
    """The release inside the loop over slabs is left out, so that the ring runs dry."""
    done: list[x.Stmt] = []

    def drop(node: x.Stmt) -> bool:
        if isinstance(node, x.Arrive) and node.barrier == "ab.empty" and not done:
            done.append(node)
            return True
        return False

    return drop


def test_protocol_findings_point_at_an_event() -> None:
    kernel = without(
        expand_file(ROOT / "examples" / "gemm.cake"),
        "load",
        lambda n: isinstance(n, x.Wait) and n.barrier == "ab.empty",
    )
    verdict = verify(kernel, effort="quick")
    recording = choose(kernel, verdict)
    assert recording is not None
    finding = model(kernel, verdict, recording, None)["finding"]
    assert finding["code"] == verdict.diagnostics[0].code and finding["then"] is not None


def test_names_and_sources_cannot_leave_their_place() -> None:
    text = EARLY.replace("wgmma.wait(keep=2)", "wgmma.wait(keep=2)      # </script><b onclick='x'>&amp;")
    page = shown(text)[1]
    assert page.count("</script>") == 2 and "<b onclick" not in page
    assert any("</script><b onclick='x'>&amp;" in line for line in data_of(page)["lines"].values())
    assert json.loads(embedded({"</script>": "<!-- & \u2028"})) == {"</script>": "<!-- & \u2028"}
    assert not re.search("[<>&\u2028]", embedded({"</script>": "<!-- & \u2028"}))


def test_large_launches_are_cut_where_the_finding_is(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, verdict = judged(EARLY)
    recording = shown(EARLY)[0]
    monkeypatch.setattr(import_module("cake.timeline.model"), "LIMIT", 500)
    data = model(kernel, verdict, recording, EARLY)
    assert len(data["events"]) == 500 and data["cut"]["all"] == len(recording.batch.events)
    ids = {row[0] for row in data["events"]}
    assert data["finding"]["then"] in ids and {data["cut"]["first"], data["cut"]["last"]} <= ids
    assert all(a in ids and b in ids for a, b, _ in data["edges"])
    whole = model(*judged(GEMM), shown(GEMM)[0], GEMM)
    assert whole["cut"]["first"] == whole["events"][0][0] == shown(GEMM)[0].batch.events[0].id


# ---- what the data says ----------------------------------------------------------------------------------------------


def test_a_tick_is_a_round() -> None:
    events = shown(GEMM)[0].batch.events
    times = ticks(events)
    assert times == sorted(times)
    seen: dict[tuple[int, object], object] = {}
    for event, tick in zip(events, times, strict=True):
        for actor, step in actors(event):
            assert seen.setdefault((tick, actor), step) == step


def test_edges_lead_to_every_wait() -> None:
    events = shown(GEMM)[0].batch.events
    kinds = {e.id: e for e in events}
    into: dict[int, set[str]] = {}
    for a, b, kind in edges(events):
        assert a in kinds and b in kinds
        into.setdefault(b, set()).add(kind)
    for event in events:
        if isinstance(event, ev.Pass) and event.found >= 0:
            assert into[event.id] == {"phase"}
        elif isinstance(event, ev.GroupWait) and event.ops:
            assert into[event.id] == {"group", "commit"}
        elif isinstance(event, ev.Contrib) and event.form == "tx":
            assert into[event.id] == {"bytes"}


def test_slots_fill_and_empty_in_turn() -> None:
    recording = shown(GEMM)[0]
    events = recording.batch.events
    lanes = slots(judged(GEMM)[0], events, ticks(events))
    assert {(s.ring, s.slot) for s in lanes} == {("ab", n) for n in range(4)} | {("cs", 0), ("cs", 1)}
    for lane in lanes:
        states = [g.state for g in lane.segments]
        full = "full" if lane.ring == "ab" else "stored"
        assert states == ["filling", full] * (len(states) // 2)
        assert all(
            a.last is not None and a.last <= b.first for a, b in zip(lane.segments, lane.segments[1:], strict=False)
        )
        assert all(g.position % (4 if lane.ring == "ab" else 2) == lane.slot for g in lane.segments)


def test_kernels_in_batches_show_the_one_that_fails() -> None:
    kernel = expand_file(ROOT / "examples" / "softmax.cake", kernel="softmax")
    launch = next(launch for launch in Family(kernel).launches() if launch.values["M"] > 0)
    recording = record(kernel, launch, ctas=1)
    assert recording is not None and recording.batches >= 1 and recording.number == 0


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("text", [GEMM, EARLY], ids=["safe", "unsafe"])
def test_the_script_draws_every_event(text: str, tmp_path: Path) -> None:
    """Its layout, run without a browser: each event belongs to a mark, each role has a lane."""
    harness = """
        const state_ = {};
        globalThis.document = {getElementById: id => ({textContent: DATA})};
        %s
        build();
        const missing = D.events.filter(e => !markOf.has(e[ID]) && !D.ops.some(o => o[OP.event] === e[ID]));
        const lost = marks.filter(m => !(m.to > m.from) || m.lane === undefined || Number.isNaN(m.part / m.parts));
        console.log(JSON.stringify({missing: missing.map(e => e[KIND]), lost: lost.length, lanes: lanes.map(l => l.name)}));
    """
    data = json.dumps(json.dumps(shown(text)[2]))
    script = tmp_path / "layout.js"
    script.write_text(
        f"const DATA = {data};\n" + harness % (ASSETS / "lanes.js").read_text(encoding="utf-8"), encoding="utf-8"
    )
    done = subprocess.run(["node", str(script)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["missing"] == [] and found["lost"] == 0
    assert any(n.startswith("math[1] ·") for n in found["lanes"]) and any(
        n.startswith("load ·") for n in found["lanes"]
    )
    for name in SCRIPTS:
        subprocess.run(["node", "--check", str(ASSETS / name)], check=True)
