"""Any text is read or refused with a finding; nothing else ever leaves the parser."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fuzz.surface_properties import check_text

HERE = Path(__file__).parent
EXAMPLES = [path.read_text(encoding="utf-8") for path in sorted((HERE.parent / "ir" / "examples").glob("*.cake"))]
REGRESSIONS = sorted((HERE / "regressions").glob("*.cake"))
TOKEN = re.compile(r"\n *|\w+|[^\w\n ]+| +")

SNIPPETS = [
    *"()[]{}:,.=+-*/%<>@&|!~^;?#\\\"'\t\r\0\f\ufeff\u00a0\u2028é",
    *("->", "//", "**", "==", "+=", ":=", "<<", "\n", "\n    ", "\n        ", "\r\n", "'''", '"""'),
    *(
        "if ",
        "else:",
        "elif x:",
        "for ",
        " in ",
        "with ",
        " as ",
        "pass",
        "not ",
        " and ",
        "while x:",
        "break",
        "def f():",
    ),
    *(
        "None",
        "True",
        "lambda x: y",
        "return",
        "kernel ",
        "sequence ",
        "tiles once:",
        "role ",
        "do r:",
        "where ",
        "const ",
    ),
    *("1e999", "0x1", "1_0", ".5", "9" * 30, "f''", "zeros((1, 2))", "p.acquire()", "x[:, None]", " split(0)", " one "),
]

# CAKE_FUZZ_CASES asks for a longer run of each property.
quick = settings(
    max_examples=int(os.environ.get("CAKE_FUZZ_CASES", "150")), deadline=None, suppress_health_check=list(HealthCheck)
)


@quick
@given(st.text(max_size=300))
@example("\ud800")
@example("\r")
def test_any_text(text: str) -> None:
    check_text(text)


@quick
@given(st.lists(st.sampled_from(SNIPPETS) | st.sampled_from(["x", "y ", "f(", "1", " "]), max_size=60).map("".join))
def test_texts_of_tokens(text: str) -> None:
    check_text(text)


def mutate(text: str, rng: random.Random) -> str:
    """A text near ``text``: a part of it, with some pieces put in, taken out, doubled or exchanged."""
    start = rng.choice([0, 0, rng.randrange(len(text) + 1)])
    text = text[start : start + rng.randrange(100, 2000)]
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(text) + 1)
        to = min(len(text), at + rng.randrange(1, 40))
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:at] + rng.choice(SNIPPETS) + text[at:]
        elif kind == 1:
            text = text[:at] + text[to:]
        elif kind == 2:
            text = text[:to] + text[at:]
        else:
            tokens = TOKEN.findall(text)
            if tokens:
                i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
                tokens[i], tokens[j] = tokens[j], tokens[i]
                text = "".join(tokens)
    return text


@quick
@given(st.sampled_from(EXAMPLES), st.integers(0, 2**32))
def test_mutated_kernels(text: str, seed: int) -> None:
    check_text(mutate(text, random.Random(seed)))


@quick
@given(st.sampled_from(EXAMPLES), st.integers(0, 6000))
def test_truncated_kernels(text: str, length: int) -> None:
    check_text(text[:length])


@quick
@given(st.sampled_from(EXAMPLES), st.randoms(use_true_random=False))
def test_shuffled_tokens(text: str, rng: random.Random) -> None:
    tokens = TOKEN.findall(text[:1500])
    rng.shuffle(tokens)
    check_text("".join(tokens))


@quick
@given(st.sampled_from(EXAMPLES), st.randoms(use_true_random=False))
def test_shuffled_lines(text: str, rng: random.Random) -> None:
    lines = text.split("\n")
    rng.shuffle(lines)
    check_text("\n".join(lines))


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_regressions(path: Path) -> None:
    """Texts that once failed; read as the fuzzer read them."""
    check_text(path.read_bytes().decode("utf-8", "surrogateescape"))
