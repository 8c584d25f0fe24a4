"""The interpreter of PTX on programs of a few instructions, one for each thing that it has to find or to let pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cake.ptx.interpret import Launch, Outcome, Pointer, Tensor, TensorMap, examine, program, run
from cake.ptx.interpret.alu import function, signed
from cake.ptx.interpret.schedules import LATE, Ranked

BOX = TensorMap(0, 4, (32, 8), (128,), (32, 1))
TENSORS = (Tensor("x", 1024, constant=True), Tensor("y", 1024), Tensor("flag", 16, bytes(16)))
OUT = TensorMap(1, 4, (32, 8), (128,), (32, 1))


def ptx(*warps: str, init: str = "", also: str = "") -> str:
    """A kernel (maps of x and y, pointers to y and flag) with a program for each warp. Thread 0 runs ``init`` before a
    barrier of all. ``%lane`` is the lane, ``%rest`` true in lanes other than 0; barriers lie from byte 0 of shared
    memory (``%s``), data from byte 1024 (``%d``, and of the thread ``%e``); ``also``: in every thread at the start."""
    text = [
        *(".version 9.0", ".target sm_90a", ".address_size 64"),
        ".visible .entry k(.param .align 64 .b8 k_param_0[128], .param .align 64 .b8 k_param_1[128], "
        ".param .u64 k_param_2, .param .u64 k_param_3)",
        *("{", "mov.u32 %t, %tid.x;", "shr.u32 %w, %t, 5;", "and.b32 %lane, %t, 31;", "setp.ne.s32 %rest, %lane, 0;"),
        *("mov.u32 %s, shared_memory;", "add.s32 %d, %s, 1024;", "shl.b32 %o, %lane, 2;", "add.s32 %e, %d, %o;"),
        *("ld.param.u64 %y, [k_param_2];", "ld.param.u64 %flag, [k_param_3];", "cvt.u64.u32 %o64, %o;"),
        *("add.s64 %mine, %y, %o64;", "mov.b64 %load, k_param_0;", "mov.b64 %store, k_param_1;", also),
        *("setp.ne.s32 %q, %t, 0;", "@%q bra $ready;", init, "fence.mbarrier_init.release.cluster;", "$ready:"),
        f"bar.sync 0, {32 * len(warps)};",
        *(f"setp.eq.s32 %is{n}, %w, {n};\n@%is{n} bra $warp{n};" for n in range(1, len(warps))),
    ]
    for n, body in enumerate(warps):
        text += [f"$warp{n}:", body, "ret;"]
    return "\n".join([*text, "}", ""])


def wait(at: int = 0, parity: int = 0, more: str = "") -> str:
    """Until a phase has completed."""
    again, done = (f"${word}{at}{parity}{len(more)}_%N" for word in ("again", "done"))
    poll = f"mbarrier.try_wait.parity{more}.shared::cta.b64 %done, [%s+{at}], {parity};"
    return f"{again}:\n{poll}\n@%done bra {done};\nbra {again};\n{done}:"


def lead(*body: str) -> str:
    """By lane 0."""
    return "\n".join(["@%rest bra $l_%N;", *body, "$l_%N:"])


def source(*warps: str, init: str = "", also: str = "") -> str:
    """The PTX; ``%N`` becomes unique in each part between ``|`` of the programs."""
    parts = []
    for n, w in enumerate(warps):
        parts.append("\n".join(p.replace("%N", f"{n}x{i}") for i, p in enumerate(w.split("|"))))
    return ptx(*parts, init=init, also=also)


LAUNCH = Launch((BOX, OUT, Pointer(1), Pointer(2)), TENSORS, ctas=1, threads=64, shared=8192)


def found(*warps: str, init: str = "", also: str = "", **launch: Any) -> Outcome:
    """What the interpreter says of a launch with these warps."""
    made = replace(LAUNCH, threads=32 * len(warps), **launch)
    return examine(source(*warps, init=init, also=also), made, seeds=2, warps=2)


ONE = "mbarrier.init.shared::cta.b64 [%s], 1;"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%s];"
WRITE, READ = "st.shared.b32 [%e], 1;", "ld.shared.b32 %v, [%e];"
SYNC = "bar.warp.sync -1;"
PUBLISH = "fence.proxy.async.shared::cta;"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%store, {0, 0}], [%d];"
COMMIT, READ_OUT = "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read 0;"
PIECE = "cp.async.ca.shared.global [%e], [%mine], 4, 4;"
LOOSE = "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%s];"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s], 128;"
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%d], [%load, {0, 0}], [%s];"
FILL = lead(EXPECT, LOAD)
EXCHANGED = (f"{WRITE}\n{SYNC}|" + lead(ARRIVE), f"{wait()}\n{READ}")


CLEAN = {
    "a line handed over": (EXCHANGED, ONE),
    "a copy waited for": ((FILL, f"{wait()}\n{READ}"), ONE),
    "a copy read by its own warp": ((f"{FILL}|{wait()}\n{READ}",), ONE),
    "a store with its fence": ((f"{WRITE}\n{PUBLISH}\n{SYNC}|" + lead(STORE, COMMIT, READ_OUT),), ""),
    "the fence of threads before a relaxed arrival": (
        (f"{WRITE}\n{SYNC}|" + lead("fence.acq_rel.cta;", LOOSE), EXCHANGED[1]),
        ONE,
    ),
    "a named barrier": ((f"{WRITE}\nbar.arrive 1, 64;", f"bar.sync 1, 64;\n{READ}"), ""),
    "cp.async that arrives by itself": (
        (f"{PIECE}\ncp.async.mbarrier.arrive.noinc.shared.b64 [%s];", f"{wait()}\n{READ}"),
        "mbarrier.init.shared::cta.b64 [%s], 32;",
    ),
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name: str) -> None:
    warps, init = CLEAN[name]
    said = found(*warps, init=init)
    assert (said.verdict, said.findings) == ("clean", ()), said


BROKEN = {
    "no meeting before the leader arrives": ("race", (f"{WRITE}\n" + lead(ARRIVE), EXCHANGED[1]), ONE),
    "nobody arrives": ("deadlock", ("", wait()), ONE),
    "two arrivals of one": ("over-arrival", (lead("mbarrier.arrive.shared::cta.b64 _, [%s], 2;"), wait()), ONE),
    "a phase too far": ("deadlock", (lead(ARRIVE) + "|" + lead(ARRIVE), wait()), ONE),
    "bytes that never come": ("deadlock", (lead(EXPECT), wait()), ONE),
    "bytes that nobody announced": (
        "deadlock",
        (lead(ARRIVE, LOAD), wait() + "|" + wait(0, 1)),
        "mbarrier.init.shared::cta.b64 [%s], 2;",
    ),
    "two counts of one barrier": ("barrier", ("bar.sync 1, 64;", "bar.sync 1, 96;"), ""),
    "one lane at a barrier": ("deadlock", (lead("bar.sync 1, 64;"), "bar.sync 1, 64;"), ""),
    "no wait for a copy": ("race", (FILL, READ + "\n" + wait()), ONE),
    "a relaxed wait": ("visibility", (FILL, f"{wait(more='.relaxed.cta')}\n{READ}"), ONE),
    "a relaxed arrival": ("visibility", (f"{WRITE}\n{SYNC}|" + lead(LOOSE), EXCHANGED[1]), ONE),
    "a copy in flight at the end": ("in flight", (FILL,), ONE),
    "a copy into what is read": ("race", (f"{WRITE}\n{READ}\n{PUBLISH}", FILL + "|" + wait()), ONE),
    "no proxy fence": ("fence", (f"{WRITE}\n{SYNC}|" + lead(STORE, COMMIT, READ_OUT),), ""),
    "the fence before the write": ("fence", (f"{PUBLISH}\n{WRITE}\n{SYNC}|" + lead(STORE, COMMIT, READ_OUT),), ""),
    "the buffer of a store rewritten": (
        "race",
        (
            f"{WRITE}\n{PUBLISH}\n{SYNC}|"
            + lead(STORE, COMMIT, "cp.async.bulk.wait_group.read 1;")
            + f"\n{SYNC}\n{WRITE}",
        ),
        "",
    ),
    "a store not committed": ("in flight", (f"{WRITE}\n{PUBLISH}\n{SYNC}|" + lead(STORE, READ_OUT),), ""),
    "two pairs on one barrier": (
        "race",
        (f"{WRITE}\nbar.sync 1, 64;", f"bar.sync 1, 64;\n{READ}", "bar.sync 1, 64;", "bar.sync 1, 64;"),
        "",
    ),
    "data over a barrier": ("lifetime", ("st.shared.b32 [%s], 1;", ""), ONE),
    "an mbarrier that nobody made": ("lifetime", (wait(), ""), ""),
    "outside of shared memory": ("address", ("st.shared.b32 [%e+8192], 1;",), ""),
    "outside of a tensor": ("address", ("st.global.u32 [%mine+1000], 1;",), ""),
    "an input written": (
        "readonly",
        (lead(STORE.replace("%store", "%load"), COMMIT, "cp.async.bulk.wait_group 0;"),),
        "",
    ),
    "cp.async not waited for": ("race", (f"{PIECE}\ncp.async.commit_group;\n{READ}\ncp.async.wait_group 0;",), ""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    kind, warps, init = BROKEN[name]
    said = found(*warps, init=init)
    assert said.verdict == "broken", said
    assert kind in {f.kind for f in said.findings}, said


def test_overrun() -> None:
    """A thread that waits is lapped: two phases complete before it looks again."""
    code = program(source(lead(ARRIVE) + "|" + lead(ARRIVE), wait() + "|" + wait(0, 1), init=ONE))
    slow = Ranked("slow to wake", LATE, {(0, 1): 3.0}, slow=-2.8)
    assert [f.kind for f in run(code, LAUNCH, slow).findings] == ["overrun", "deadlock"]


def test_policy() -> None:
    """Axiom A4 alone: a fence by another thread than the writer, a read that no fence follows before a refill."""
    other = found(f"{WRITE}\n{SYNC}|" + lead(PUBLISH, STORE, COMMIT, READ_OUT))
    assert (other.verdict, other.kind) == ("policy", "misplaced")
    again = lead(EXPECT, LOAD) + "|" + wait(0, 1)
    refill = found(f"{FILL}|{wait()}\n{READ}\n{SYNC}|{again}", init=ONE)
    assert (refill.verdict, refill.kind) == ("policy", "refill")


def test_company_without_a_victim() -> None:
    """Two pairs on one barrier that hand nothing over: who meets whom depends on the schedule, and nothing else does."""
    said = found(*["bar.sync 1, 64;"] * 4)
    assert (said.verdict, said.kind) == ("policy", "mixed")


@pytest.mark.parametrize(("given", "verdict"), [(168, "clean"), (128, "broken")])
def test_register_pool(given: int, verdict: str) -> None:
    """setmaxnreg.inc waits for registers that others give back; 4 warps give 88 or 64 each, and 4 want 64 more."""
    less, more = "setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg.inc.sync.aligned.u32 232;"
    assert found(*[less] * 4, *[more] * 4, registers=given).verdict == verdict


@pytest.mark.parametrize(
    ("release", "acquire", "verdict"),
    [
        ("st.release.gpu.global.s32", "ld.acquire.gpu.global.s32", "clean"),
        ("st.release.cta.global.s32", "ld.acquire.gpu.global.s32", "broken"),
        ("st.relaxed.gpu.global.s32", "ld.acquire.gpu.global.s32", "broken"),
        ("st.release.gpu.global.s32", "ld.relaxed.gpu.global.s32", "broken"),
    ],
)
def test_flags_between_ctas(release: str, acquire: str, verdict: str) -> None:
    """CTA 0 writes and signals, CTA 1 spins and reads."""
    zero = f"st.global.u32 [%mine], 1;\n{SYNC}|" + lead(f"{release} [%flag], 1;") + "\nret;"
    one = f"$spin:\n{acquire} %f, [%flag];\nsetp.ne.s32 %p, %f, 1;\n@%p bra $spin;\nld.global.u32 %v, [%mine];"
    branch = "mov.u32 %c, %ctaid.x;\nsetp.eq.s32 %second, %c, 1;"
    said = found(f"@%second bra $one;\n{zero}|$one:\n{one}", also=branch, ctas=2)
    assert said.verdict == verdict, said


REMOTE = "mapa.shared::cluster.u32 %peer, %s, 0;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [%peer];"
MEET = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;"


@pytest.mark.parametrize(("end", "verdict"), [("", "broken"), ("wait", "clean")])
def test_a_cta_that_ends_before_its_peer(end: str, verdict: str) -> None:
    """Rank 1 arrives at a barrier of rank 0, which waits for it or does not."""
    branch = "mov.u32 %c, %cluster_ctarank;\nsetp.eq.s32 %second, %c, 1;"
    zero = wait() if end else ""
    said = found(
        f"{MEET}\n@%second bra $one;\n{zero}\nret;|$one:|" + lead(REMOTE), init=ONE, also=branch, ctas=2, cluster=2
    )
    assert said.verdict == verdict, said
    assert verdict == "clean" or said.kind == "peer"


def test_who_leaves_after_arriving_at_the_cluster_barrier() -> None:
    """Rank 1 arrives and leaves; the barrier still waits for the threads of rank 0, and carries what rank 1 wrote."""
    branch = "mov.u32 %c, %cluster_ctarank;\nsetp.eq.s32 %second, %c, 1;\nmapa.shared::cluster.u32 %there, %e, 0;"
    arrive, waits = "barrier.cluster.arrive.release.aligned;", "barrier.cluster.wait.acquire.aligned;"
    one = f"st.shared::cluster.b32 [%there], 1;\n{arrive}"
    for zero, verdict in ((f"{arrive}\n{waits}\n{READ}", "clean"), (f"{READ}\n{arrive}\n{waits}", "broken")):
        both = (f"{MEET}\n@%second bra $one;\n{zero}\nret;|$one:\n{one}", f"{MEET}\n{arrive}\n{waits}")
        assert found(*both, also=branch, ctas=2, cluster=2).verdict == verdict


def test_control_by_data() -> None:
    """A condition on data may choose among values; if it chooses what is done, the verdict is unknown."""
    test = "ld.global.f32 %f1, [%mine];\nsetp.lt.f32 %p, %f1, 0f00000000;\n@%p bra $less;\n"
    assert found(test + "mov.u32 %z, 1;\n$less:\nst.shared.b32 [%e], %z;").verdict == "clean"
    said = found(test + "bar.sync 0, 32;\n$less:")
    assert said.verdict == "unknown" and "data" in said.why


def test_unknown_instruction() -> None:
    said = found("clusterlaunchcontrol.try_cancel.async [%d], [%s];")
    assert said.verdict == "unknown" and "clusterlaunchcontrol" in said.why


ARITHMETIC: list[tuple[str, tuple[Any, ...], Any]] = [
    ("add.s32", (0xFFFFFFFF, 2), 1),
    ("sub.s32", (1, 2), 0xFFFFFFFF),
    ("mul.lo.s32", (0x10001, 0x10001), 0x20001),
    ("mul.hi.u32", (0x80000000, 4), 2),
    ("mul.wide.s32", (0xFFFFFFFF, 2), (1 << 64) - 2),
    ("mul.wide.u32", (0xFFFFFFFF, 2), 0x1FFFFFFFE),
    ("mad.lo.s32", (3, 4, 5), 17),
    ("div.s32", (0xFFFFFFF9, 2), 0xFFFFFFFD),
    ("rem.s32", (0xFFFFFFF9, 2), 0xFFFFFFFF),
    ("shr.s32", (0x80000000, 31), 0xFFFFFFFF),
    ("shr.u32", (0x80000000, 31), 1),
    ("shl.b32", (3, 31), 0x80000000),
    ("setp.lt.s32", (0xFFFFFFFF, 0), True),
    ("setp.lt.u32", (0xFFFFFFFF, 0), False),
    ("selp.b32", (1, 2, False), 2),
    ("min.s32", (0xFFFFFFFF, 1), 0xFFFFFFFF),
    ("min.u32", (0xFFFFFFFF, 1), 1),
    ("cvt.s64.s32", (0x80000000,), 0xFFFFFFFF80000000),
    ("cvt.u64.u32", (0x80000000,), 0x80000000),
    ("cvt.u32.u64", (0x1FFFFFFFF,), 0xFFFFFFFF),
    ("bfi.b32", (5, 0xF0F, 4, 4), 0xF5F),
    ("bfe.u32", (0xABCD, 4, 8), 0xBC),
    ("not.pred", (True,), False),
    ("and.pred", (False, None), False),
    ("or.pred", (None, False), None),
    ("add.s32", (None, 1), None),
    ("lop3.b32", (0b1100, 0b1010, 0b0110, 0x96), 0b0000),
    ("prmt.b32", (0x44332211, 0x88776655, 0x7531), 0x88664422),
]


@pytest.mark.parametrize(("opcode", "given", "result"), ARITHMETIC)
def test_arithmetic(opcode: str, given: tuple[Any, ...], result: Any) -> None:
    """PTX ISA 9.7.1, 9.7.5 to 9.7.8; None is a value that is not known."""
    f = function(opcode)
    assert f is not None
    assert f(*given) == result
    if None not in given:
        mixed = f((*[given[0]] * 31, type(given[0])(given[0] ^ 1)), *given[1:])
        assert (mixed[0] if isinstance(mixed, tuple) else mixed) == result


def test_floats_are_not_known() -> None:
    assert function("add.f32") is None and function("cvt.rn.f32.s32") is None and function("cvt.rzi.s32.f32") is None
    assert signed(0xFFFFFFFF, 32) == -1


NEXT = "add.s32 %n, %lane, 1;\nand.b32 %n, %n, 31;\nshl.b32 %n, %n, 2;\nadd.s32 %n, %n, %d;"
OTHER = "ld.shared.b32 %v, [%n];"
"""Of the next lane."""
EACH = "mbarrier.init.shared::cta.b64 [%s], 32;"


@pytest.mark.parametrize(
    ("name", "body", "verdict"),
    [
        ("neighbours", f"{NEXT}\n{WRITE}\n{OTHER}", "broken"),
        ("met", f"{NEXT}\n{WRITE}\n{SYNC}\n{OTHER}", "clean"),
        ("its own", f"{WRITE}\n{READ}\n{WRITE}", "clean"),
        ("overwritten", f"{NEXT}\n{WRITE}\n{SYNC}\n{OTHER}\n{WRITE}", "broken"),
        ("a shuffle", f"{NEXT}\n{WRITE}\nshfl.sync.idx.b32 %v, %lane, 0, 31, -1;\n{OTHER}", "broken"),
        ("a message", f"{NEXT}\n{WRITE}\n{ARRIVE}\n{wait()}\n{OTHER}", "clean"),
        ("a message before", f"{NEXT}\n{ARRIVE}\n{WRITE}\n{wait()}\n{OTHER}", "broken"),
        ("copies", f"{NEXT}\n{PIECE}\ncp.async.wait_all;\n{READ}", "clean"),
        ("copies of others", f"{NEXT}\n{PIECE}\n{SYNC}\ncp.async.wait_all;\n{OTHER}", "broken"),
        ("copies and a meeting", f"{NEXT}\n{PIECE}\ncp.async.wait_all;\n{SYNC}\n{OTHER}", "clean"),
        ("sums", "red.relaxed.cta.shared.add.s32 [%d], 1;\n" * 2 + SYNC, "clean"),
        ("a sum and a read", f"{WRITE}\n{SYNC}\nred.relaxed.cta.shared.add.s32 [%d], 1;\n{OTHER}", "broken"),
    ],
)
def test_lanes(name: str, body: str, verdict: str) -> None:
    """Lanes of a warp that exchange through shared memory have to meet; each by itself need not."""
    body = body.replace("cp.async.wait_all;", "cp.async.commit_group;\ncp.async.wait_group 0;")
    body = body.replace(OTHER, OTHER.replace("%n", "%d")) if name == "a sum and a read" else body
    said = found(body, init=EACH)
    assert said.verdict == verdict, said
    assert verdict == "clean" or "lanes" in {f.kind for f in said.findings}, said
