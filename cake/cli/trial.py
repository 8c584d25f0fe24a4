"""``cake run``: a kernel on the inputs of its module (or random ones), simulated or on a GPU, and compared."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cake.cli import sources
from cake.cli.arguments import prepare
from cake.cli.companion import Companion, load
from cake.cli.compare import Comparison, compare, finding, unwritten
from cake.cli.outcome import error
from cake.cli.progress import working
from cake.cli.settings import Settings, Value, check_dims, take, unknown
from cake.diagnostics import Diagnostic
from cake.ir import expanded as x
from cake.ir.sequences import Sequence


@dataclass(frozen=True)
class Trial:
    """What ``cake run`` was asked for."""

    file: str
    settings: Settings
    kernel: str | None = None
    device: str = "cpu"
    seed: int = 0
    ctas: int = 2
    check: bool = False


@dataclass
class Output:
    """One output of a run; ``comparison`` where it was compared."""

    name: str
    dtype: str
    array: Any
    nan: int
    unwritten: int
    comparison: Comparison | None = None


def execute(trial: Trial) -> tuple[list[Diagnostic], dict[str, Any], str]:
    """Run it: findings, the JSON result, and the text of the summary."""
    source = sources.read(trial.file)
    constants = take(trial.settings, declared_constants(source, trial.kernel))
    kernel = sources.expand_any(source, trial.kernel, constants, None)
    companion = load(source.path, kernel.name)
    if trial.check and (companion is None or companion.find("reference") is None):
        where = f"{companion.path} has no" if companion else f"no module beside {trial.file} has a"
        raise error(
            "R102",
            f"{where} `reference`, so there is nothing to check {kernel.name} against",
            "write one, or leave out --check",
        )
    dims, scalars = launch_values(kernel, companion, {n: v for n, v in trial.settings.items() if n not in constants})
    arguments = prepare(kernel, companion, dims, scalars, trial.seed)
    start = time.perf_counter()
    if trial.device == "gpu":
        from cake.cli.device import launch

        arrays = launch(kernel, arguments)
        counts: dict[str, int] = {}
    else:
        arrays, counts = _simulate(kernel, arguments, trial, source)
    seconds = time.perf_counter() - start
    outputs = _outputs(kernel, arrays)
    found = _compare(kernel, companion, outputs, arguments, dims) if trial.check and companion else []
    result = _result(trial, kernel, dims, arguments, outputs, counts, seconds)
    return found, result, _summary(result)


def declared_constants(source: sources.Source, name: str | None) -> list[str]:
    """Names of the constants that the kernel declares."""
    if source.expanded:
        return list(sources.parse_expanded(source).constants)
    from cake.compiler import select
    from cake.expand.constants import declared
    from cake.ir import surface as s

    parsed = sources.parse_surface(source)
    chosen = select(parsed, name)
    steps = {step.name for step in chosen.steps} if isinstance(chosen, s.Sequence) else {chosen.name}
    named = [c.name for k in parsed.kernels if k.name in steps for c in declared(parsed, k)]
    return list(dict.fromkeys(named))


def launch_values(
    kernel: x.Kernel | Sequence, companion: Companion | None, settings: Settings
) -> tuple[dict[str, int], dict[str, Value]]:
    """Dims and scalars: those set, and the module's sizes for the rest. R103 names the dims that are missing."""
    names = [d.name for d in kernel.dims]
    scalars = [s.name for s in kernel.scalars]
    unknown(settings, kernel.name, {"constants": kernel.constants, "dims": names, "scalars": scalars})
    sizes = companion.sizes if companion else {}
    merged = {**{n: v for n, v in sizes.items() if n in names or n in scalars}, **settings}
    missing = [n for n in names if n not in merged]
    if missing:
        listed = ", ".join(f"`{n}`" for n in missing)
        example = " ".join(f"{n}=256" for n in missing)
        what = "dim" if len(missing) == 1 else "dims"
        help = f"add {example}, or SIZES in the module beside the file"
        raise error("R103", f"{kernel.name} needs the {what} {listed}", help)
    return check_dims(take(merged, names)), take(merged, scalars)


def _simulate(
    kernel: x.Kernel | Sequence, arguments: Mapping[str, Any], trial: Trial, source: sources.Source
) -> tuple[dict[str, Any], dict[str, int]]:
    from cake.machine import run
    from cake.machine.sequences import run_sequence

    with working(f"simulating {kernel.name}"), sources.trusted(source):
        if isinstance(kernel, Sequence):
            result = run_sequence(kernel, arguments, seed=trial.seed, ctas=trial.ctas)
            return result.outputs, {"steps": result.steps, "ctas": result.clusters}
        result = run(kernel, arguments, seed=trial.seed, ctas=trial.ctas)
    return result.outputs, {"steps": result.steps, "ctas": result.clusters * kernel.cluster}


def _outputs(kernel: x.Kernel | Sequence, arrays: Mapping[str, Any]) -> list[Output]:
    from cake.machine.registers import poison

    outputs = []
    for t in kernel.tensors:
        if t.direction == "in":
            continue
        array = arrays[t.name]
        fresh = unwritten(array, poison(t.dtype, array.shape)).sum() if t.direction == "out" else 0
        nan = np.isnan(array.astype(np.float64)).sum() if array.size else 0
        outputs.append(Output(t.name, t.dtype, array, int(nan), int(fresh)))
    return outputs


def _compare(
    kernel: x.Kernel | Sequence,
    companion: Companion,
    outputs: list[Output],
    arguments: Mapping[str, Any],
    dims: Mapping[str, int],
) -> list[Diagnostic]:
    from cake.machine.registers import poison

    given = {n: v for n, v in arguments.items() if (t := kernel.tensor(n)) is None or t.direction != "out"}
    reference = companion.find("reference")
    with working("reference"):
        wanted = companion.call(reference, given, dict(dims), dict(kernel.constants))
    if not isinstance(wanted, Mapping):
        raise companion.wrong(f"reference gave {type(wanted).__name__}, not a dict")
    tolerance = companion.find("tolerance")
    found = []
    for o in outputs:
        tensor = kernel.tensor(o.name)
        if o.name not in wanted:
            if tensor is not None and tensor.direction == "inout":
                continue  # workspace
            raise companion.wrong(f"reference gave no `{o.name}`")
        want = np.asarray(wanted[o.name])
        if want.shape != o.array.shape:
            raise companion.wrong(f"reference gave `{o.name}` as {list(want.shape)}; it is {list(o.array.shape)}")
        allowed = companion.call(tolerance, o.name) if tolerance is not None else None
        if allowed is not None and not (isinstance(allowed, int | float) and allowed >= 0):
            raise companion.wrong(f"tolerance({o.name!r}) gave {allowed!r}, not a number >= 0")
        o.comparison = compare(o.name, o.dtype, o.array, want, poison(o.dtype, o.array.shape), allowed)
        if not o.comparison.ok:
            found.append(finding(o.comparison, o.array.shape, tensor.span if tensor else None))
    return found


# ---- what is printed ------------------------------------------------------------------------------------------------


def _number(value: float | None) -> float | str | None:
    """JSON has no infinities."""
    return value if value is None or np.isfinite(value) else str(value)


def _result(
    trial: Trial,
    kernel: x.Kernel | Sequence,
    dims: Mapping[str, int],
    arguments: Mapping[str, Any],
    outputs: list[Output],
    counts: Mapping[str, int],
    seconds: float,
) -> dict[str, Any]:
    rows = []
    for o in outputs:
        row: dict[str, Any] = {"name": o.name, "dtype": o.dtype, "shape": list(o.array.shape)}
        row |= {"nan": o.nan, "unwritten": o.unwritten, "compared": o.comparison is not None}
        if (c := o.comparison) is not None:
            row["unwritten"] = c.unwritten
            row |= {"ok": c.ok, "wrong": c.wrong, "tolerance": c.tolerance, "limit": c.limit}
            row |= {"max_abs_error": _number(c.max_abs), "max_rel_error": _number(c.max_rel)}
            row |= {"worst": list(c.worst) if c.worst is not None else None}
        rows.append(row)
    return {
        "kernel": kernel.name,
        "target": kernel.target,
        "device": trial.device,
        "seed": trial.seed,
        "constants": dict(kernel.constants),
        "dims": dict(dims),
        "scalars": {s.name: _number(arguments[s.name]) for s in kernel.scalars},
        "outputs": rows,
        **counts,
        "seconds": round(seconds, 4),
    }


def _summary(result: Mapping[str, Any]) -> str:
    named = {**result["constants"], **result["dims"], **result["scalars"]}
    lines = [f"{result['kernel']} on {result['device']}: " + ", ".join(f"{n}={_short(v)}" for n, v in named.items())]
    table = [("output", "type", "max error", "relative", "NaN", "unwritten", "")]
    for row in result["outputs"]:
        shape = f"{row['dtype']}[{', '.join(map(str, row['shape']))}]"
        errors = ("", "")
        if row["compared"]:
            errors = (f"{float(row['max_abs_error']):.3g}", f"{float(row['max_rel_error']):.3g}")
        verdict = "" if not row["compared"] else "agrees" if row["ok"] else "differs"
        table.append((row["name"], shape, *errors, str(row["nan"]), str(row["unwritten"]), verdict))
    if not any(row["compared"] for row in result["outputs"]):
        table = [(r[0], r[1], r[4], r[5]) for r in table]  # type: ignore[misc]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines += ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table]
    counted = [f"{result['steps']:,} steps", f"{result['ctas']} CTAs"] if "steps" in result else []
    lines.append(", ".join([*counted, f"{result['seconds']:.2f} s"]))
    return "\n".join(lines)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
