"""The questions that the kernels of the language document ask."""

from __future__ import annotations

from cake.facts import Facts, show
from cake.ir.expr import Apply, Const, Reg, Sym, integer

from .kernels import parse


def facts(*lines: str) -> Facts:
    """Facts from text: ``lo <= x < hi`` declares, ``x = e`` defines, anything else is assumed."""
    f = Facts()
    extend(f, *lines)
    return f


def extend(f: Facts, *lines: str) -> None:
    for line in lines:
        parts = line.split(" <= ")
        if len(parts) == 2 and " < " in parts[1]:
            name, hi = parts[1].split(" < ")
            f.declare(name.strip(), parse(parts[0]), parse(hi))
        elif " = " in line:
            name, value = line.split(" = ")
            f.define(name.strip(), parse(value))
        else:
            f.assume(parse(line))


def proves(f: Facts, text: str) -> bool | None:
    return f.prove(parse(text))


def test_slice_extents() -> None:
    f = facts("0 <= t.m < cdiv(M, 128)", "t.m0 = t.m * 128", "r = k0 + (t.blocks - 1 - i) * 176")
    assert f.difference(parse("t.m0 + 128"), parse("t.m0")) == 128
    assert f.difference(parse("f*32 + 32"), parse("f*32")) == 32
    assert f.difference(parse("r + 2*176"), parse("r + 176")) == 176
    assert f.difference(parse("t.m0 + k"), parse("t.m0")) is None
    assert show(f.simplify(parse("(t.m0 + 128) - t.m0"))) == "128"


def attention(causal: bool) -> Facts:
    f = Facts()
    for d in ("nq", "nk", "H", "HK", "max_q"):
        f.declare(d, 1)
    extend(f, "0 <= t.i < cdiv(max_q, 128)", "m0 = (cdiv(nq, 128) - 1 - t.i) * 128", "m0 >= 0")
    extend(f, f"seen = where({causal}, min(nk, m0 + 128 + nk - nq), nk)")
    extend(f, f"full = where({causal}, min(nk, m0 + 1 + nk - nq), nk)")
    extend(f, "blocks = max(1, cdiv(seen, 128))", "masked = max(1, blocks - max(0, full) // 128)")
    return f


def test_attention_pieces() -> None:
    for causal in (False, True):
        base = attention(causal)
        assert proves(base, "masked <= blocks") is True
        assert proves(base, "masked >= 1") is True
        table = {
            ("0", "1"): {"i < blocks": True, "i > 0": False, "i < masked": True},
            ("1", "masked"): {"i < blocks": True, "i > 0": True, "i < masked": True},
            ("masked", "blocks"): {"i < blocks": True, "i > 0": True, "i < masked": False},
            ("blocks", "blocks + 1"): {"i < blocks": False, "i > 0": True, "i < masked": False},
        }
        for (lo, hi), answers in table.items():
            f = base.copy()
            f.declare("i", parse(lo), parse(hi))
            for cond, answer in answers.items():
                assert proves(f, cond) is answer, (causal, lo, hi, cond)
        f = base.copy()
        f.declare("i", 0, parse("blocks + 1"))
        assert proves(f, "i < blocks") is None
        assert proves(f, "i > 0") is None


def test_attention_definitions() -> None:
    f = attention(False)
    assert show(f.simplify(parse("where(False, min(nk, m0 + 128 + nk - nq), nk)"))) == "nk"
    assert show(f.simplify(parse("where(True, min(nk, m0 + 128 + nk - nq), nk)"))) == "min(m0 + nk - nq + 128, nk)"
    extend(f, "H % HK == 0", "0 <= t.h < H")
    assert proves(f, "t.h // (H // HK) < HK") is True
    assert proves(f, "t.h // (H // HK) >= 0") is True


def test_ampere_pieces() -> None:
    base = facts("kt = cdiv(K, 32)")
    base.declare("K", 1)
    f = base.copy()
    f.declare("k", -3, parse("min(0, kt)"))
    extend(f, "f = k + 3")
    assert proves(f, "k >= 0") is False
    assert proves(f, "f >= 0") is True
    assert proves(f, "f < kt") is None
    f = base.copy()
    f.declare("k", 0, parse("kt"))
    assert proves(f, "k >= 0") is True
    assert proves(base, "kt >= 1") is True
    f = base.copy()
    f.declare("k", parse("max(-3, min(0, kt))"), parse("kt"))
    assert proves(f, "k >= 0") is True


def test_bounds_and_masks() -> None:
    f = Facts()
    for d in ("M", "N", "Q"):
        f.declare(d, 1)
    extend(f, "0 <= m < cdiv(M, 128)", "m0 = m * 128", "0 <= w < 2", "0 <= n < cdiv(N, 256)", "n0 = n * 256")
    f.declare("%row", 0, 64)
    f.declare("%col", 0, 64)
    row, col = "m0 + 64*w + %row", "n0 + 64*i + %col"
    f.declare("i", 0, 4)
    assert proves(f, f"{row} < M") is None
    assert proves(f, "m0 < M") is True
    assert proves(f, f"{row} >= 0") is True
    g = f.copy()
    g.assume(parse(f"{row} < M and {col} < N"))
    assert proves(g, f"{row} < M and {row} >= 0") is True
    assert proves(g, f"0 <= {col}") is True
    assert proves(g, f"{col} < N") is True
    assert f.range(parse(row))[0] == 0
    assert f.range(parse("64*w + %row")) == (0, 127)
    assert proves(f, f"{row} < M") is None
    r = facts("0 <= g < cdiv(Q, 8)", "0 <= w < 8", "r = g*8 + w")
    assert proves(r, "r < Q") is None
    extend(r, "r < Q")
    assert proves(r, "r < Q") is True
    assert proves(r, "r >= 0") is True


def test_tile_numbers() -> None:
    f = facts("0 <= m < cdiv(M, 128)", "0 <= n < cdiv(N, 192)", "id = m * cdiv(N, 192) + n")
    f.declare("M", 1)
    f.declare("N", 1)
    assert proves(f, "id >= 0") is True
    assert proves(f, "id < cdiv(M, 128) * cdiv(N, 192)") is True
    assert proves(f, "id < cdiv(M, 128) * cdiv(N, 192) - 1") is None


def test_alignment() -> None:
    f = facts("K % 8 == 0", "N % 8 == 0", "c = 8*q")
    assert f.divides(16, parse("2*K"))
    assert f.divides(8, parse("K*x"))
    assert not f.divides(16, parse("K*x"))
    assert f.alignment(parse("c*2 + row*N*2")) == 16
    assert f.alignment(parse("8*v + 64")) == 8
    assert f.alignment(integer(0)) == 1 << 20
    assert f.alignment(parse("x")) == 1
    assert f.divides(8, parse("max(K, N)"))
    assert f.divides(64, parse("(K // 64) * 64"))
    assert proves(f, "(2*K) % 16 == 0") is True
    assert proves(f, "K % 16 == 0") is None
    assert proves(f, "K % 8 == 1") is False


def test_knn_and_decode() -> None:
    f = facts("nt = cdiv(N, 64)", "per = cdiv(nt, 8)", "0 <= z < 8", "j0 = z*per", "nj = max(0, min(per, nt - j0))")
    f.declare("N", 1)
    f.declare("j", 0, parse("nj"))
    assert proves(f, "(j0 + j) * 64 < N") is True
    assert proves(f, "(j0 + j) * 64 >= 0") is True
    assert proves(f, "per >= 1") is True
    d = facts("0 <= c < 320")
    assert proves(d, "c // 10 < 32") is True
    assert proves(d, "c % 10 < 10") is True
    assert proves(d, "c % 10 >= 0") is True
    assert proves(d, "c // 10 < 31") is None
    p = facts("1 <= len < PMAX * 16 + 1", "0 <= j < cdiv(len, 64)", "0 <= u < 4", "i = j*4 + u")
    assert proves(p, "i < PMAX") is None
    extend(p, "i * 16 < len")
    assert proves(p, "i < PMAX") is True


def test_kda() -> None:
    f = facts("0 <= n", "0 <= i < cdiv(n, 64)", "left = n - i * 64")
    assert proves(f, "left >= 1") is True
    f.declare("%col", 0, 64)
    g = f.copy()
    extend(g, "left >= 64")
    assert proves(g, "i * 64 + %col < n") is True
    assert proves(f, "i * 64 + %col < n") is None


def test_host() -> None:
    f = facts("M >= 1", "N <= 4096", "N % 8 == 0", "N >= 1")
    assert proves(f, "M >= 1") is True
    assert proves(f, "M > 0") is True
    assert proves(f, "M == 0") is False
    assert proves(f, "N >= 8") is True
    assert f.range(parse("N")) == (8, 4096)
    assert proves(f, "kt >= 1 or kt < 1") is True


def test_reassignment() -> None:
    f = facts("x >= 3", "y = x + 1")
    f.assign("x", parse("x + 5"))
    assert proves(f, "x >= 8") is True
    assert f.difference(parse("x"), parse("y")) == 4
    f.forget("x")
    assert proves(f, "x >= 8") is None
    assert proves(f, "y >= 4") is True


def test_simplify() -> None:
    f = facts("0 <= w < 4", "K % 8 == 0")
    f.declare("%row", 0, 64)
    assert show(f.simplify(parse("(64*w + %row) // 64"))) == "w"
    assert show(f.simplify(parse("(64*w + %row) % 64"))) == "rows"
    assert show(f.simplify(parse("x % 4 + 4*(x // 4)"))) == "x"
    assert show(f.simplify(parse("(x + 3) % 4 + 1"))) == "(x + 3) % 4 + 1"
    assert show(f.simplify(parse("max(w, -1)"))) == "w"
    assert show(f.simplify(parse("w >= 0 and x < 3"))) == "x < 3"
    assert show(f.simplify(parse("cdiv(K, 64) * 64 + 0"))) == "cdiv(K, 64) * 64"
    assert show(f.simplify(parse("2 + 3*x - x"))) == "x * 2 + 2"


def test_explain() -> None:
    f = facts("0 <= m < cdiv(M, 128)", "t.m0 = 128*m", "K % 8 == 0")
    assert f.explain(parse("t.m0 < M")) == ("t.m0 = 128 * m", "0 <= m < cdiv(M, 128)")


def test_contradiction() -> None:
    f = facts("x >= 3")
    assert f.consistent()
    extend(f, "x < 2")
    assert not f.consistent()


def test_row_major_numbers() -> None:
    f = facts("0 <= i < M", "0 <= j < N")
    f.declare("M", 1)
    f.declare("N", 1)
    assert proves(f, "i*N + j < M*N") is True
    assert proves(f, "(i*N + j) // N == i") is True
    assert proves(f, "(i*N + j) // N < M") is True
    assert proves(f, "(i*N + j) % N < N") is True
    extend(f, "0 <= p < M*N")
    assert proves(f, "p // N < M") is True
    assert proves(f, "(p // N)*N <= p") is True
    assert proves(f, "cdiv(M, N)*N >= M and cdiv(M, N)*N < M + N") is True


def test_disjunctions() -> None:
    assert proves(facts("x != 3", "x >= 3"), "x >= 4") is True
    assert proves(facts("x < 2 or x > 5", "x >= 2"), "x >= 6") is True


def test_clamped_pieces() -> None:
    f = facts("masked = max(1, b - q)", "b >= 1")
    assert show(f.simplify(parse("max(1, masked)"))) == "masked"
    assert show(f.simplify(parse("min(1, b + 1)"))) == "1"
    assert show(f.simplify(parse("min(max(0, b), b)"))) == "b"


def test_tiles_and_types() -> None:
    acc, ids = Reg(name="acc", dtype="f32"), Reg(name="ids", dtype="i32")
    low = Const(value=float("-inf"), dtype="f32")
    f = facts("0 <= row < M")

    def mask(cond: str) -> Apply:
        return Apply(op="where", args=(parse(cond), acc, low), dtype="f32")

    assert f.simplify(mask("row < M")) == acc
    assert f.simplify(mask("row >= M")) == low
    assert show(f.simplify(mask("%col + 0 < M"))) == "where(cols < M, acc, -inf)"
    inside = Apply(op="<", args=(ids, integer(7)), dtype="bool")
    f.assume(inside)
    assert f.prove(Apply(op="<=", args=(ids, integer(7)), dtype="bool")) is True
    f.forget("ids")
    assert f.prove(inside) is None
    wide = Apply(op="cast", args=(Sym(name="row"),), dtype="i64")
    same = Apply(op="+", args=(wide, Const(value=0, dtype="i64")), dtype="i64")
    assert f.simplify(same) == wide


def test_choices_cover_every_case() -> None:
    f = facts("0 <= x < 9")
    assert proves(f, "where(x == 3, 9, x) >= 4") is None
    assert proves(f, "where(x == 3, 9, x) != 3") is True
    assert proves(f, "where(x < 3 or x > 5, 4, x) >= 3 and where(x < 3 or x > 5, 4, x) <= 5") is True
    assert proves(f, "where(x > 2 and x < 6, 4, x) != 5") is True
