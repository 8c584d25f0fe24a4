"""What a kernel takes of the hardware: shared memory, registers, threads, barrier ids, and their limits."""

from __future__ import annotations

import pytest

from cake.ir import expanded as x
from tests.expand.cases import Case, check, parametrised
from tests.expand.kernels import GOOD_MATH, expand, found, ring, rows

ROLES = "role load: warps 4, registers {}\nrole math[2]: warps 4, registers {}"

CASES = [
    Case(
        "shared memory",
        "W701",
        ring(pipeline="pipeline p[29] load -> math:\n    a: bf16[64, 64] swizzle(128)"),
        ("232,448", "238,032"),
    ),
    Case("register pool", "W702", ring(roles=ROLES.format(40, 240) + "  # here"), ("66,560", "64,512")),
    Case("register step", "W702", ring(roles=ROLES.format(40, 225) + "  # here"), ("225", "steps of 8")),
    Case(
        "registers of some",
        "W702",
        ring(roles="role load: warps 4, registers 40\nrole math: warps 4  # here"),
        ("every role",),
    ),
    Case(
        "named barriers",
        "W705",
        ring(
            roles="role load: warps 1\nrole math[15]: warps 2",
            math="sync()\nsync(math)\n" + GOOD_MATH.replace("    f = ldmatrix(s.a)\n", ""),
        ),
        ("17", "16"),
    ),
    Case("threads", "W706", ring(roles="role load: warps 4\nrole math[8]: warps 4"), ("1152", "1024")),
    Case(
        "budgets on Ampere",
        "W711",
        rows("pass", warps="4, registers 40  # here\n    role other: warps 4, registers 48").replace("sm_90a", "sm_80"),
        ("setmaxnreg", "sm_80"),
        alone=False,
    ),
    Case(
        "budget of a warp",
        "C602",
        ring(roles="role load: warps 1, registers 40  # here\nrole math: warps 4, registers 232"),
        ("`load`", "warpgroups"),
    ),
]


@parametrised(CASES)
def test_refused(case: Case) -> None:
    check(case)


def test_limits_are_reached_but_not_passed() -> None:
    """One stage less, one barrier less, one budget less: accepted."""
    assert found(ring(pipeline="pipeline p[28] load -> math:\n    a: bf16[64, 64] swizzle(128)")) == []
    assert found(ring(roles=ROLES.format(24, 240))) == []
    lean = GOOD_MATH.replace("    f = ldmatrix(s.a)\n", "")
    assert found(ring(roles="role load: warps 4\nrole math[14]: warps 2", math="sync()\n" + lean)) == []


def test_launch_registers() -> None:
    """The pool is the launch registers times the threads: floor8(65536 / threads)."""
    kernel = expand(ring(roles=ROLES.format(40, 232)))
    assert (kernel.threads, kernel.launch_registers) == (384, 168)
    forms = {r.name: (r.body[0].form, r.body[0].count) for r in kernel.roles if isinstance(r.body[0], x.SetMaxNReg)}
    assert forms == {"load": ("dec", 40), "math": ("inc", 232)}
    assert expand(ring()).launch_registers is None


def test_one_budget_for_all_bounds_the_launch() -> None:
    """No setmaxnreg, any number of warps, any target: what still lets as many CTAs share an SM."""
    for warps, budget, launch in ((8, 40, 40), (8, 72, 80), (4, 64, 64), (3, 64, 64), (4, 232, 248)):
        text = rows("pass").replace("sm_90a", "sm_80").replace("warps 4", f"warps {warps}, registers {budget}")
        kernel = expand(text)
        assert kernel.launch_registers == launch
        assert not any(isinstance(n, x.SetMaxNReg) for r in kernel.roles for n in r.body)
        resident = 65536 // (32 * warps * budget)
        assert launch >= budget and 32 * warps * launch * resident <= 65536


def test_warps_are_aligned() -> None:
    """A role of four warps starts at a multiple of four."""
    kernel = expand(ring(roles="role load: warps 1\nrole math[2]: warps 4"))
    assert [(r.name, r.first_warp) for r in kernel.roles] == [("load", 0), ("math", 4)]
    assert kernel.threads == 384


def test_offsets() -> None:
    """Buffers by alignment, then size; swizzled ones start on their atom; barriers follow."""
    text = ring(more="smem u: f32[5]\nsmem w: bf16[16, 32] swizzle(64)\nsmem z: bf16[16, 64] swizzle(128)")
    kernel = expand(text)
    at = {b.name: b.offset for b in kernel.buffers}
    assert at == {"p.a": 0, "z": 16384, "w": 18432, "u": 19456}
    assert all(b.offset % {0: 128, 64: 512, 128: 1024}[b.swizzle] == 0 for b in kernel.buffers)
    assert [b.offset for b in kernel.barriers] == [19584, 19600]
    assert kernel.shared_bytes == 19616


def test_order_of_declarations_is_free() -> None:
    """Permuting buffers of different sizes moves nothing."""
    one = expand(ring(more="smem u: f32[64]\nsmem z: f32[512]"))
    two = expand(ring(more="smem z: f32[512]\nsmem u: f32[64]"))
    assert {b.name: b.offset for b in one.buffers} == {b.name: b.offset for b in two.buffers}


def test_alias_and_pad() -> None:
    """An aliased buffer starts where the other one does and reserves no more than it needs; padding lengthens rows."""
    kernel = expand(ring(more="smem u: f32[8, 32] pad(4)\nsmem v: f32[16] alias(u)"))
    assert kernel.buffer("v").offset == kernel.buffer("u").offset
    assert kernel.buffer("u").slot_bytes == 8 * (32 + 4) * 4
    assert kernel.barriers[0].offset == kernel.buffer("u").offset + kernel.buffer("u").slot_bytes


def test_a_longer_alias_extends_the_memory() -> None:
    short = expand(ring(more="smem u: f32[32]"))
    long = expand(ring(more="smem u: f32[32]\nsmem v: f32[1024] alias(u)"))
    assert long.shared_bytes == short.shared_bytes + 4096 - 128


def test_a_longer_alias_overlaps_nothing_else() -> None:
    """What an alias adds beyond its host is memory of its own."""
    kernel = expand(ring(more="smem u: f32[32]\nsmem v: f32[1024] alias(u)\nsmem w: f32[16]"))
    v, w = kernel.buffer("v"), kernel.buffer("w")
    assert w.offset >= v.offset + v.slot_bytes or w.offset + w.slot_bytes <= v.offset


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_90a", "sm_100a"])
def test_shared_memory_by_target(target: str) -> None:
    """Each target has its own limit."""
    from cake.ir.targets import TARGETS

    limit = TARGETS[target].shared_bytes
    body = "v = load(x[t.r, cols(v)], where=cols(v) < N)"
    for extra, expected in ((0, []), (128, ["W701"])):
        text = rows(body).replace("sm_90a", target).replace("    role", f"    smem b: u8[{limit + extra}]\n    role", 1)
        assert [d.code for d in found(text)] == expected


def test_an_alias_brings_its_alignment() -> None:
    """A swizzled alias of a plain buffer moves its host to an atom."""
    kernel = expand(ring(more="smem q: f32[4]\nsmem u: f32[512]\nsmem v: bf16[16, 64] swizzle(128) alias(u)"))
    assert kernel.buffer("v").offset == kernel.buffer("u").offset
    assert kernel.buffer("v").offset % 1024 == 0
