"""Litmus programs on words in global memory: one order of values, none that returns too early, none that is missed (38-40).

CTAs are told apart by their number; each is one warp.
"""

from __future__ import annotations

from cake.ir import expanded as x
from cake.ir.expr import Apply, Expr, integer
from tests.litmus import build as b
from tests.litmus.build import CTA, R32, SYNCWARP, elements
from tests.litmus.registry import program

DATA: dict[str, tuple[tuple[int, int], b.DTypeName, str]] = {
    "data": ((1, 32), "f32", "inout"),
    "more": ((1, 32), "f32", "inout"),
    "flag": ((1, 1), "i32", "inout"),
    "other": ((1, 1), "i32", "inout"),
}


def _is(*numbers: int) -> Expr:
    tests = [b.test("==", CTA, integer(n)) for n in numbers]
    found = tests[0]
    for one in tests[1:]:
        found = Apply(op="or", args=(found, one), dtype="bool")
    return found


def _kernel(name: str, *programs: tuple[x.Stmt, ...]) -> x.Kernel:
    """One program a CTA."""
    body = [b.when(_is(number), *program) for number, program in enumerate(programs)]
    return b.kernel(name, (b.role("w", *body, tiles={"r": R32}),), tensors=DATA, grid=len(programs))


def _write(name: str) -> tuple[x.Stmt, ...]:
    return b.write(elements(name), 32), SYNCWARP


def _read(*names: str) -> tuple[x.Stmt, ...]:
    return SYNCWARP, *(b.read(elements(name), 32) for name in names)


def _two_writers(ordered: bool) -> x.Kernel:
    """Two CTAs write a line each; the first signals 1, the other one too, or waits for the 1 and signals 2."""
    second = (b.wait_until("flag", 1), SYNCWARP, b.signal("flag", 2)) if ordered else (b.signal("flag", 1),)
    return _kernel(
        "writers",
        (*_write("data"), b.signal("flag", 1)),
        (*_write("more"), *second),
        (b.wait_until("flag", 2 if ordered else 1), *_read("data", "more")),
    )


@program("38a_two_signals_of_one_value")
def p38a() -> x.Kernel:
    return _two_writers(False)


@program("38b_a_chain_of_values")
def p38b() -> x.Kernel:
    return _two_writers(True)


def _value_again(again: int) -> x.Kernel:
    """A word goes 1, 2, and then to ``again``, which stands for a second line of data."""
    return _kernel(
        "again",
        (*_write("data"), b.signal("flag", 1), b.wait_until("flag", 2), *_write("more"), b.signal("flag", again)),
        (b.wait_until("flag", 1), *_read("data"), SYNCWARP, b.signal("flag", 2)),
        (b.wait_until("flag", again), *_read("more")),
    )


@program("39a_a_value_again")
def p39a() -> x.Kernel:
    return _value_again(1)


@program("39b_a_new_value")
def p39b() -> x.Kernel:
    return _value_again(3)


def _passed_on(seen: bool) -> x.Kernel:
    """A word goes to 1 and back to 0; a waiter for the 1 may come late, unless it says so in a word of its own."""
    answer = (b.signal("other", 1),) if seen else ()
    until = (b.wait_until("other", 1),) if seen else ()
    return _kernel(
        "missed",
        (*_write("data"), b.signal("flag", 1), *until, SYNCWARP, b.signal("flag", 0)),
        (b.wait_until("flag", 1), *_read("data"), SYNCWARP, *answer),
    )


@program("40a_a_value_missed")
def p40a() -> x.Kernel:
    return _passed_on(False)


@program("40b_a_value_answered")
def p40b() -> x.Kernel:
    return _passed_on(True)
