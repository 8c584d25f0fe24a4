"""Coverage-guided fuzzing of the parser, printer and renderers.

    python benchmarks/fuzz_parser.py --seconds 600

Each text must satisfy ``tests/fuzz/surface_properties.py``: it is a program that prints, parses again and survives
JSON, or it is refused with findings that can be shown. With atheris (libFuzzer for Python) installed that engine runs;
otherwise a small one that keeps the texts which reach new lines. The summary is written as JSON; texts that fail are
stored in ``tests/fuzz/regressions`` and replayed by the test suite from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REGRESSIONS = ROOT / "tests" / "fuzz" / "regressions"
SUMMARY = Path(__file__).with_name("fuzz_parser.json")
MAX_LENGTH = 4096
SURFACE = [
    "ir/grammar.lark",
    *(f"ir/{name}.py" for name in ("blocks", "build", "comments", "expected", "habits", "idioms", "lexer", "parser")),
    *(f"ir/{name}.py" for name in ("printer", "surface")),
    *(f"diagnostics/{name}.py" for name in ("fixes", "jsonout", "model", "text")),
]
sys.path.insert(0, str(ROOT))


def decode(data: bytes) -> str:
    """The text of an input; bytes that are not UTF-8 become halves of pairs, which the parser has to refuse."""
    return data.decode("utf-8", "surrogateescape")


def seeds() -> list[bytes]:
    """Kernels of the specification in overlapping pieces, and the examples of the pages of all codes."""
    from cake.diagnostics.codes import all_codes, explain

    texts: list[str] = []
    for path in sorted((ROOT / "tests" / "ir" / "examples").glob("*.cake")):
        text = path.read_text(encoding="utf-8")
        texts += [text[i : i + MAX_LENGTH] for i in range(0, len(text), MAX_LENGTH // 2)]
    for code in all_codes():
        page = explain(code)
        texts += [block for block in (page.fail, page.good) if block]
    return [text.encode() for text in texts]


def store_failure(data: bytes) -> str:
    """Keep a text that failed; its file name."""
    REGRESSIONS.mkdir(parents=True, exist_ok=True)
    path = REGRESSIONS / f"{hashlib.sha256(data).hexdigest()[:16]}.cake"
    path.write_bytes(data)
    return path.name


# -- atheris


def worker(arguments: list[str]) -> None:
    """One run of libFuzzer in this process."""
    import atheris

    with atheris.instrument_imports(include=["cake.ir", "cake.diagnostics"]):
        from tests.fuzz.surface_properties import check_text

    def one(data: bytes) -> None:
        check_text(decode(data))

    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


def run_atheris(seconds: float, seed: int) -> dict[str, Any]:
    """Run libFuzzer until the time is up, starting again after each failure."""
    failures: dict[str, str] = {}
    executions = features = coverage = 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        corpus, crashes = Path(folder, "corpus"), Path(folder, "crashes")
        corpus.mkdir()
        crashes.mkdir()
        for i, data in enumerate(seeds()):
            (corpus / f"seed{i}").write_bytes(data)
        words = Path(folder, "words")
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in _words()), encoding="utf-8")
        rounds = 0
        while (left := seconds - (time.monotonic() - start)) > 1 and rounds < 50:
            rounds += 1
            options = [
                f"-max_total_time={int(left)}",
                f"-max_len={MAX_LENGTH}",
                f"-seed={seed + rounds}",
                "-timeout=20",
            ]
            options += [f"-dict={words}", f"-artifact_prefix={crashes}/", "-rss_limit_mb=4096", "-use_value_profile=0"]
            command = [sys.executable, __file__, "--worker", str(corpus), *options]
            result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            counts = [int(n) for n in re.findall(r"^#(\d+)\s", result.stderr, re.MULTILINE)]
            executions += max(counts, default=0)
            reached = re.findall(r"cov: (\d+) ft: (\d+)", result.stderr)
            if reached:
                coverage, features = (
                    max(old, int(new)) for old, new in zip((coverage, features), reached[-1], strict=True)
                )
            for path in crashes.iterdir():
                failures[store_failure(path.read_bytes())] = _last_line(result.stderr, result.stdout)
                path.unlink()
            if result.returncode == 0 and not counts:
                raise RuntimeError(result.stderr[-2000:])
        kept = len(list(corpus.iterdir()))
    return {
        "executions": executions,
        "coverage_edges": coverage,
        "features": features,
        "corpus": kept,
        "failures": failures,
        "seconds": round(time.monotonic() - start, 1),
    }


def _words() -> list[str]:
    from cake.ir.lexer import FOREIGN, OPERATORS, RESERVED, SOFT

    plain = [*RESERVED, *SOFT, *FOREIGN, *OPERATORS, "+=", "@", "&", "**", ":=", "'''", "\n", "\n    ", "#", "\\\n"]
    return [*plain, "persistent", "swizzle(128)", "wait()", "fill()", "zeros(", "acquire", "phase", "axis=1", "1e30"]


def _escaped(word: str) -> str:
    return "".join(c if c.isalnum() else f"\\x{ord(c):02x}" for c in word)


def _last_line(*outputs: str) -> str:
    for output in outputs:
        lines = [line for line in output.split("\n") if re.match(r"\w*(Error|Exception)\b", line.strip())]
        if lines:
            return lines[-1].strip()[:200]
    return "timeout or resource limit"


# -- the small engine


def run_builtin(seconds: float, seed: int) -> dict[str, Any]:
    """Mutate texts, and keep those that reach a step from line to line that none reached before."""
    from tests.fuzz.surface_properties import check_text
    from tests.fuzz.test_fuzz_parser import mutate

    rng = random.Random(seed)
    corpus = [decode(data) for data in seeds()]
    seen: set[tuple[int, int, int]] = set()
    fresh: set[tuple[int, int, int]] = set()
    folder = str(ROOT / "cake")

    def tracer(frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(folder):
            return None
        key, last = id(frame.f_code), [frame.f_lineno]

        def line(frame: Any, event: str, _: Any) -> Any:
            step = (key, last[0], frame.f_lineno)
            if step not in seen:
                fresh.add(step)
            last[0] = frame.f_lineno
            return line

        return line

    failures: dict[str, str] = {}
    executions = 0
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        text = mutate(rng.choice(corpus) or "x", rng)[:MAX_LENGTH]
        executions += 1
        fresh.clear()
        sys.settrace(tracer)
        try:
            check_text(text)
        except Exception as error:
            sys.settrace(None)
            kind = traceback.format_exception_only(error)[-1].strip()[:200]
            if kind not in failures.values():
                failures[store_failure(text.encode("utf-8", "surrogateescape"))] = kind
        finally:
            sys.settrace(None)
        if fresh:
            seen |= fresh
            corpus.append(text)
    return {
        "executions": executions,
        "coverage_edges": len(seen),
        "corpus": len(corpus),
        "failures": failures,
        "seconds": round(time.monotonic() - start, 1),
    }


def _surface_version() -> str:
    """A digest of the sources that were fuzzed, so that a summary can be told to be stale."""
    digest = hashlib.sha256()
    for name in SURFACE:
        digest.update((ROOT / "cake" / name).read_bytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Run an engine and write the summary."""
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=["auto", "atheris", "builtin"], default="auto")
    parser.add_argument("--summary", type=Path, default=SUMMARY)
    options = parser.parse_args()
    engine = options.engine
    if engine == "auto":
        engine = "atheris" if importlib.util.find_spec("atheris") else "builtin"
    surface = _surface_version()
    result = (run_atheris if engine == "atheris" else run_builtin)(options.seconds, options.seed)
    summary = {
        "engine": engine,
        "seed": options.seed,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "surface": surface,
        **result,
    }
    options.summary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary, indent=2))
    sys.exit(1 if summary["failures"] else 0)


if __name__ == "__main__":
    main()
