"""``cake bench``: a kernel beside a peer on a GPU, shape by shape: errors against float64, paired times, goals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cake.cli import sources
from cake.cli.companion import Companion, companion_path, load_module
from cake.cli.device import build_into
from cake.cli.measure import Order, measure
from cake.cli.outcome import UsageError, blocking, error
from cake.cli.progress import working
from cake.cli.settings import Settings, parse_settings, take, unknown
from cake.cli.trial import declared_constants, launch_values
from cake.diagnostics import CakeError, Diagnostic
from cake.evaluate import peer as peers
from cake.evaluate.intervals import geometric_mean
from cake.evaluate.pairs import PAIRS
from cake.evaluate.record import plain, write_json
from cake.ir import expanded as x
from cake.ir.sequences import Sequence

TIMEOUT = 300.0
"""Seconds that one shape may take, from the start of its process to its end."""

GOAL = "R107"
WRONG = "R101"
NO_REFERENCE = "R102"

Outcome = tuple[list[Diagnostic], dict[str, Any], str]


@dataclass(frozen=True)
class Bench:
    """What ``cake bench`` was asked for. ``file``: a source, an expanded kernel or the directory of an artifact; ``words``,
    ``constants`` and ``shapes`` as on the command line."""

    file: str
    words: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    peer: str | None = None
    module: str | None = None
    kernel: str | None = None
    target: str | None = None
    pairs: int = PAIRS
    seed: int = 0
    goal: float | None = None
    timeout: float = TIMEOUT
    out: str | None = None


@dataclass(frozen=True)
class Subject:
    """What is measured: the expanded kernel, and the directory of its artifact (None: to be built)."""

    kernel: x.Kernel | Sequence
    directory: Path | None
    companion: Companion | None
    settings: Settings
    """Dims and scalars that all shapes share."""


def execute(bench: Bench) -> Outcome:
    """Measure every shape: findings, the JSON result, and the text."""
    from cake.runtime import driver

    subject = _subject(bench)
    who = _peer_name(bench, subject)
    shapes = [parse_settings(w for w in text.split(",") if w) for text in bench.shapes] or [{}]
    launches = [launch_values(subject.kernel, subject.companion, {**subject.settings, **shape}) for shape in shapes]
    driver.driver()  # no driver or no device is said before anything is compiled
    found: list[Diagnostic] = []
    records: list[dict[str, Any]] = []
    with _artifact(subject) as directory:
        for dims, scalars in launches:
            record: dict[str, Any] = {"dims": dims, "scalars": scalars}
            module = str(subject.companion.path) if subject.companion else None
            order = Order(str(directory), module, bench.peer, dims, scalars, bench.seed, bench.pairs)
            try:
                record |= _run(order, subject.kernel.name, bench.timeout)
            except CakeError as problem:
                new = [d.model_copy(update={"message": f"{_named(record)}: {d.message}"}) for d in problem.diagnostics]
                record["failed"] = [f"{d.code}: {d.message}" for d in problem.diagnostics]
            else:
                new = judge(record, bench.goal, subject.kernel)
            found += new
            records.append(record)
    result = result_of(bench, subject, who, records)
    result["met"] = not blocking(found) if bench.goal is not None else None
    if bench.out is not None:
        found += _written(Path(bench.out), {**result, "diagnostics": [d.model_dump(mode="json") for d in found]})
    return found, result, summary(result)


def _run(order: Order, name: str, timeout: float) -> dict[str, Any]:
    """One shape in a process of its own: a kernel that hangs is killed with it."""
    from cake.runtime import watchdog

    with working(f"measuring {name} {_named({'dims': order.dims, 'scalars': order.scalars})}"):
        record: dict[str, Any] = watchdog.run(measure, order, timeout=timeout, what=f"measuring {name}")
    return record


# ---- what is asked --------------------------------------------------------------------------------------------------


def _subject(bench: Bench) -> Subject:
    """The kernel with its constants chosen, and the module with what it is tried on."""
    settings = parse_settings([*bench.words, *bench.constants])
    fixed = [text.partition("=")[0] for text in bench.constants]
    directory = Path(bench.file)
    if directory.is_dir():
        kernel = _built(directory)
        chosen = take(settings, kernel.constants)
        sources.settled(kernel, bench.kernel, chosen, bench.target)
        path = None
    else:
        source = sources.read(bench.file)
        chosen = take(settings, [*declared_constants(source, bench.kernel), *fixed])
        kernel = sources.expand_any(source, bench.kernel, chosen, bench.target)
        path = companion_path(source.path)
    unknown(fixed, kernel.name, {"constants": kernel.constants})
    path = Path(bench.module) if bench.module is not None else path
    companion = load_module(path, kernel.name) if path is not None else None
    shared = {n: v for n, v in settings.items() if n not in chosen}
    return Subject(kernel, directory if directory.is_dir() else None, companion, shared)


def _built(directory: Path) -> x.Kernel | Sequence:
    """The kernel or sequence of an artifact's directory (G010 if it holds none)."""
    from cake.codegen.build import read
    from cake.codegen.sequences import MANIFEST, read_sequence

    if (directory / MANIFEST).exists():
        return read_sequence(directory).sequence
    return read(directory).kernel


def _peer_name(bench: Bench, subject: Subject) -> str:
    """What the kernel is compared with, for the record."""
    if bench.peer is not None:
        if peers.split(bench.peer) is None:
            raise UsageError(f"`{bench.peer}` names no peer", "write module:callable, or path/to/module.py:callable")
        return bench.peer
    if subject.companion is not None and (own := subject.companion.find("peer")) is not None:
        return f"{subject.companion.path}:{getattr(own, '__name__', 'peer')}"
    where = f"{subject.companion.path} has no `peer`" if subject.companion else "there is no module with a `peer`"
    help = "add --peer module:callable, or --module FILE.py with a `peer`"
    raise error(peers.CODE, f"there is nothing to compare {subject.kernel.name} with: {where}", help, peers.CONTRACT)


@contextmanager
def _artifact(subject: Subject) -> Iterator[Path]:
    """The directory of the artifact; built first where there is none."""
    if subject.directory is not None:
        yield subject.directory
        return
    with TemporaryDirectory(prefix="cake-") as place:
        build_into(subject.kernel, Path(place))
        yield Path(place)


# ---- what is found --------------------------------------------------------------------------------------------------


def judge(record: Mapping[str, Any], goal: float | None, kernel: x.Kernel | Sequence) -> list[Diagnostic]:
    """Findings about one measured shape: wrong outputs, a peer that computes something else, a goal that is not met."""
    found = []
    where = _named(record)
    for row in record.get("after", ()):
        if row["ok"] is False:
            message = f"output `{row['name']}` differs from the reference after the timed calls ({where})"
            found.append(_wrong(message, row, kernel))
    for row in record["outputs"]:
        if row["ok"] is False:
            found.append(_wrong(f"output `{row['name']}` differs from the reference ({where})", row, kernel))
        if row.get("peer_ok") is False and row["ok"]:
            message = f"the peer's `{row['name']}` differs from the reference, so it is no measure ({where})"
            found.append(peers.finding(message, *_facts(row, "peer"), severity="warning"))
        if row["against"] != "float64":
            message = f"there is no float64 reference for `{row['name']}`, so its error is not known ({where})"
            help = "give the module a `reference` or a `device_reference`"
            found.append(_diagnostic(NO_REFERENCE, "warning", message, help=help))
    ratio, noise = record["time"]["ratio"], record["time"]["noise"]
    if goal is not None and not ratio["low"] > goal:
        message = f"the goal of {goal:g} is not met ({where})"
        fact = f"peer over kernel {_interval(ratio)}: the lower end must be above the goal"
        found.append(_diagnostic(GOAL, "error", message, fact, f"noise floor {_interval(noise)}"))
    return found


def _diagnostic(
    code: str, severity: Any, message: str, *facts: str, help: str | None = None, span: Any = None
) -> Diagnostic:
    return Diagnostic(code=code, severity=severity, message=message, facts=facts, help=help, span=span)


def _wrong(message: str, row: Mapping[str, Any], kernel: x.Kernel | Sequence) -> Diagnostic:
    tensor = kernel.tensor(row["name"])
    return _diagnostic(WRONG, "error", message, *_facts(row, "kernel"), span=tensor.span if tensor else None)


def _facts(row: Mapping[str, Any], side: str) -> list[str]:
    e = row[side]
    facts = [f"normwise {_error(e['normwise'])}, worst element {_error(e['worst'])}; allowed {row['tolerance']:.3g}"]
    if e["index"] is not None:
        place = ", ".join(map(str, e["index"]))
        facts.append(f"worst at {row['name']}[{place}]: {_error(e['got'])}, expected {_error(e['expected'])}")
    if e["not_finite"]:
        facts.append(f"not finite: {e['not_finite']:,} of {e['compared']:,}")
    if e["differing"] is not None:
        facts.append(f"differing: {e['differing']:,} of {e['compared']:,}")
    return facts


def _written(path: Path, result: Mapping[str, Any]) -> list[Diagnostic]:
    """Write the result; X004 as a finding, because what was measured is worth printing all the same."""
    try:
        write_json(path, result)
    except OSError as problem:
        return [_diagnostic("X004", "error", f"{path} cannot be written: {problem.strerror}")]
    return []


# ---- what is printed ------------------------------------------------------------------------------------------------


def result_of(bench: Bench, subject: Subject, who: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The JSON result. The environment of the first shape that was measured, and what was built, are those of all."""
    measured = [r for r in records if "time" in r]
    common = [{name: r.pop(name) for name in ("environment", "built")} for r in measured]
    cells = [(r["time"]["samples"]["ours_us"], r["time"]["samples"]["peer_us"]) for r in measured]
    result: dict[str, Any] = plain(
        {
            "kernel": subject.kernel.name,
            "target": subject.kernel.target,
            "artifact": str(subject.directory) if subject.directory else None,
            "constants": dict(subject.kernel.constants),
            "peer": who,
            "seed": bench.seed,
            "pairs": bench.pairs,
            "goal": bench.goal,
            **(common[0] if common else {"environment": None, "built": None}),
            "shapes": records,
            "mean": geometric_mean(cells) if len(cells) > 1 else None,
        }
    )
    return result


def summary(result: Mapping[str, Any]) -> str:
    """The result as text: a paragraph for each shape."""
    constants = ", ".join(f"{n}={v}" for n, v in result["constants"].items())
    device = (result["environment"] or {}).get("device", "no device")
    lines = [f"{result['kernel']} on {device}: {constants}", f"peer: {result['peer']}"]
    for record in result["shapes"]:
        lines += ["", _named(record), *(_measured(record, result) if "time" in record else record["failed"])]
    if result["mean"]:
        lines += ["", f"geometric mean of the ratios: {_interval(result['mean'])}"]
    return "\n".join(lines)


def _measured(record: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    t, clocks = record["time"], record["time"]["clocks"]
    lines = []
    for side, name in (("kernel", "ours"), ("peer", "peer")):
        us, cycles = t[f"{name}_us"], t[f"{name}_cycles"]
        counted = f"{cycles:>14,.0f} SM cycles" if cycles is not None else "SM cycles unknown"
        lines.append(f"  {side:<8} {us['median']:>10.2f} us [{us['low']:.2f}, {us['high']:.2f}]  {counted}")
    lines.append(
        f"  ratio    {_interval(t['ratio'])} peer over kernel, {t['pairs']} pairs; noise floor {_interval(t['noise'])}"
    )
    if result["goal"] is not None:
        met = t["ratio"]["low"] > result["goal"]
        lines.append(
            f"  goal     {result['goal']:g}: {'met' if met else 'not met'} (lower end {t['ratio']['low']:.4f})"
        )
    lines += [_error_line(row) for row in record["outputs"]]
    if record["repeatable"] is False:
        lines += [
            "  the timed calls left other bits than the first one:",
            *(_error_line(row) for row in record["after"]),
        ]
    if "sm_mhz" in clocks:
        low, middle, high = clocks["sm_mhz"]
        measured = (
            f"{clocks['power_w_max']:.0f} W, {clocks['temperature_c_max']} C at most, {clocks['samples']} samples"
        )
        lines.append(f"  clocks   SM {low:.0f} to {high:.0f} MHz, median {middle:.0f}; {measured}")
    else:
        lines.append(f"  clocks   {clocks['note']}")
    return lines


def _error_line(row: Mapping[str, Any]) -> str:
    """Both errors of an output, beside the peer's."""
    ours, peer, ratio = row["kernel"], row["peer"], row["ratio"]
    if ours is None:
        return f"  error    {row['name']}: not known"
    parts = []
    for name, what in (("normwise", "normwise"), ("worst", "worst element")):
        text = f"{what} {_error(ours[name])}"
        if peer:
            text += f" (peer {_error(peer[name])}, ratio {_error(ratio[name], '.3f')})"
        parts.append(text)
    if ours["differing"] is not None:
        parts = [f"{ours['differing']:,} elements differ" + (f" (peer {peer['differing']:,})" if peer else "")]
    verdict = "" if row["ok"] is None else ", agrees" if row["ok"] else ", WRONG"
    some = "all" if ours["compared"] == ours["elements"] else f"{ours['compared']:,} of {ours['elements']:,}"
    against = "" if row["against"] == "float64" else " with the peer: no reference"
    return f"  error    {row['name']}: {', '.join(parts)}; {some} elements compared{against}{verdict}"


def _error(value: float | str | None, form: str = ".3g") -> str:
    return "unknown" if value is None else value if isinstance(value, str) else format(value, form)


def _interval(i: Mapping[str, float]) -> str:
    return f"{i['median']:.4f} [{i['low']:.4f}, {i['high']:.4f}]"


def _named(record: Mapping[str, Any]) -> str:
    """Dims and scalars as one writes them."""
    return ", ".join(f"{n}={v}" for n, v in {**record["dims"], **record["scalars"]}.items())
