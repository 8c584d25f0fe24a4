"""Compare every form of every operation between the GPU and the simulator, on random, extreme and NaN inputs.

    python benchmarks/conformance.py build DIRECTORY [--jobs N]     anywhere: compiles, simulates, stores both
    python benchmarks/conformance.py run DIRECTORY --out OUT        on a GPU: runs what was stored and compares

``run`` needs no compiler and no simulator: a form's directory has its artifact, its inputs, the simulator's outputs and
the bounds of the tables. All forms run in one process, which ends itself when a form does not finish; the form is
recorded and a new process goes on behind it.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.ops.compare import Bound, difference, raw

INDEX = "forms.json"
HANG_SECONDS = 15.0
TOTAL_SECONDS = 600.0
HUNG = 3
TORCH = {
    "f32": "float32",
    "tf32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "i64": "int64",
    "i32": "int32",
    "i8": "int8",
    "u8": "uint8",
}

# ---- building --------------------------------------------------------------------------------------------------------


def _quick() -> None:
    """Compile without counting instructions: starting the disassembler takes longer than everything else."""
    import cake.codegen.build as module
    from cake.codegen.report import report as full

    setattr(module, "report", functools.partial(full, note="instructions are not counted"))  # noqa: B010


def build_form(task: tuple[str, str, str]) -> dict[str, Any]:
    """Compile one form and simulate each of its cases; its entry in the index, or what went wrong."""
    name, directory, where = task
    from cake.codegen.build import build, write
    from cake.machine.run import run
    from tests.ops.table import FORMS

    form = FORMS[name]
    entry: dict[str, Any] = {"name": name, "group": form.group, "directory": where, "cases": []}
    try:
        kernel = form.kernel
        try:
            artifact = build(kernel)
        except Exception as e:  # the translation check has no say in what the device computes: note it, go on without
            artifact = build(kernel, translation=False)
            entry["translation"] = str(e) or repr(e)
        write(artifact, Path(directory) / where, ("cubin", "expand"))
        entry["registers"], entry["spills"] = artifact.report.registers, bool(artifact.report.spills)
        arrays: dict[str, Any] = {}
        entry["dtypes"] = {t.name: t.dtype for t in kernel.tensors}
        for kind in form.classes:
            case = form.case(kind)
            outputs = run(kernel, case.arguments(), ctas=form.ctas).outputs
            record: dict[str, Any] = {"class": kind, "scalars": {}, "shapes": {}, "bounds": {}}
            for n, value in case.inputs.items():
                if isinstance(value, np.ndarray):
                    arrays[f"{kind}/in/{n}"] = raw(value)
                else:
                    record["scalars"][n] = value
            for n, value in outputs.items():
                arrays[f"{kind}/out/{n}"] = raw(value)
                record["shapes"][n] = list(value.shape)
                b = case.bounds[n]
                record["bounds"][n] = {"ulp": b.ulp, "ftz": b.ftz, "sign": b.sign, "reason": b.reason}
                if np.any(np.asarray(b.absolute) > 0):
                    arrays[f"{kind}/absolute/{n}"] = np.nextafter(
                        np.asarray(b.absolute, np.float32), np.float32(np.inf)
                    )
                if b.free is not None:
                    arrays[f"{kind}/free/{n}"] = np.asarray(b.free)
            entry["cases"].append(record)
        np.savez_compressed(Path(directory) / where / "data.npz", **arrays)
    except Exception:  # a defect of the compiler on one form: the others are still wanted
        entry["error"] = traceback.format_exc().splitlines()[-4:]
    return entry


def build_all(directory: Path, only: list[str], jobs: int) -> int:
    """Build every form into DIRECTORY; the number that failed."""
    from tests.ops.table import FORMS

    if (directory / INDEX).exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    names = [n for n in FORMS if not only or any(o in n for o in only)]
    tasks = [(n, str(directory), f"{i:04}") for i, n in enumerate(names)]
    entries: list[dict[str, Any]] = []
    begin = time.time()
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_quick) as pool:
        for entry in pool.imap(build_form, tasks, chunksize=4):
            entries.append(entry)
            if "translation" in entry:
                print(f"{entry['name']}: translation not checked: {entry['translation'][:300]}", flush=True)
            if "error" in entry:
                print(f"{entry['name']}: {'; '.join(entry['error'])}", flush=True)
    failed = sum("error" in e for e in entries)
    (directory / INDEX).write_text(json.dumps(entries, indent=0))
    size = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file()) / 2**20
    print(f"{len(entries) - failed} forms built, {failed} failed, {size:.1f} MiB, {time.time() - begin:.0f} s")
    return failed


# ---- in the child ----------------------------------------------------------------------------------------------------


class Watch:
    """Ends the process when a form does not finish in time: a kernel that hangs cannot be stopped from within."""

    def __init__(self) -> None:
        self.deadline = time.monotonic() + 60
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while time.monotonic() < self.deadline:
            time.sleep(0.2)
        os._exit(HUNG)

    def next(self) -> None:
        """A form begins."""
        self.deadline = time.monotonic() + HANG_SECONDS


def _tensor(torch: Any, bits: np.ndarray, dtype: str) -> Any:
    data = np.ascontiguousarray(bits)
    flat = torch.from_numpy(data.reshape(-1).view(np.uint8).copy()).cuda()
    return flat.view(getattr(torch, TORCH[dtype])).reshape(data.shape)


def _bits(torch: Any, tensor: Any, like: np.ndarray) -> np.ndarray:
    flat = tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
    return np.asarray(flat.view(like.dtype).reshape(like.shape))


def run_case(torch: Any, kernel: Any, entry: dict[str, Any], case: dict[str, Any], data: Any) -> dict[str, Any]:
    """One form on one class of inputs: two runs, compared with the simulator and with each other."""
    kind, dtypes = case["class"], entry["dtypes"]
    record: dict[str, Any] = {"class": kind, "outputs": {}, "ok": True}
    first: dict[str, Any] = {}
    for attempt in range(2):
        arguments: dict[str, Any] = dict(case["scalars"])
        for n, dtype in dtypes.items():
            key = f"{kind}/in/{n}"
            bits = data[key] if key in data else np.full_like(data[f"{kind}/out/{n}"], 0x5A)
            arguments[n] = _tensor(torch, bits, dtype)
        kernel(**arguments)
        torch.cuda.synchronize()
        got = {n: _bits(torch, arguments[n], data[f"{kind}/out/{n}"]) for n in case["shapes"]}
        if attempt:
            record["repeatable"] = all(np.array_equal(first[n], got[n]) for n in got)
        first = got
    for n, bits in first.items():
        stated = case["bounds"][n]
        absolute, free = data.get(f"{kind}/absolute/{n}", 0.0), data.get(f"{kind}/free/{n}")
        bound = Bound(stated["ulp"], absolute, stated["ftz"], stated["sign"], free, stated["reason"])
        found = difference(bits, data[f"{kind}/out/{n}"], dtypes[n], bound)
        record["outputs"][n] = asdict(found) | {"bound_ulp": stated["ulp"], "absolute": bool(np.any(absolute))}
        record["ok"] = record["ok"] and not found.mismatches
    return record


def run_forms(directory: str, names: list[str], progress: str) -> None:
    """Run forms in order, a line of JSON each."""
    import torch

    from cake.runtime import load

    watch = Watch()
    torch.zeros(1, device="cuda")
    entries = {e["name"]: e for e in json.loads((Path(directory) / INDEX).read_text())}
    with open(progress, "a", encoding="utf-8") as out:
        for name in names:
            watch.next()
            entry = entries[name]
            result: dict[str, Any] = {"name": name, "group": entry["group"], "cases": []}
            try:
                kernel = load(Path(directory) / entry["directory"])
                with np.load(Path(directory) / entry["directory"] / "data.npz") as data:
                    result["cases"] = [run_case(torch, kernel, entry, case, data) for case in entry["cases"]]
                result["ok"] = all(c["ok"] for c in result["cases"])
            except Exception as e:  # a CUDA error poisons the process: report it and end
                result |= {"ok": False, "error": str(e)}
            json.dump(result, out)
            out.write("\n")
            out.flush()
            if "error" in result:
                os._exit(1)
    os._exit(0)


# ---- in the parent ---------------------------------------------------------------------------------------------------


def run_all(directory: Path, out: Path, only: list[str]) -> int:
    """Run every built form; the number that disagree."""
    entries = json.loads((directory / INDEX).read_text())
    left = [e["name"] for e in entries if "error" not in e and (not only or any(o in e["name"] for o in only))]
    groups = {e["name"]: e["group"] for e in entries}
    results: list[dict[str, Any]] = []
    begin = time.time()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        turn = 0
        while left and time.time() - begin < TOTAL_SECONDS:
            progress = Path(scratch) / f"{turn}.jsonl"
            progress.touch()
            turn += 1
            child = context.Process(target=run_forms, args=(str(directory), left, str(progress)))
            child.start()
            child.join(TOTAL_SECONDS)
            if child.is_alive():
                child.kill()
                child.join()
            lines = [json.loads(line) for line in progress.read_text().splitlines() if line.endswith("}")]
            results += lines
            left = left[len(lines) :]
            if left and not (lines and "error" in lines[-1]):
                why = f"did not finish in {HANG_SECONDS:g} s" if child.exitcode == HUNG else f"exit {child.exitcode}"
                results.append({"name": left[0], "group": groups[left[0]], "cases": [], "ok": False, "error": why})
                left = left[1:]
    return report(results, left, time.time() - begin, out)


def report(results: list[dict[str, Any]], left: list[str], seconds: float, out: Path) -> int:
    """Write the record and print what disagrees and the largest distance by group."""
    wrong = [r for r in results if not r["ok"]]
    changing = [r["name"] for r in results if any(not c.get("repeatable", True) for c in r["cases"])]
    summary: dict[str, dict[str, Any]] = {}
    for r in results:
        row = summary.setdefault(r["group"], {"forms": 0, "wrong": 0, "max_ulp": 0.0})
        row["forms"] += 1
        row["wrong"] += not r["ok"]
        for c in r["cases"]:
            for o in c["outputs"].values():
                if o["max_ulp"] != float("inf") and not o["absolute"]:
                    row["max_ulp"] = max(row["max_ulp"], o["max_ulp"])
    for r in wrong:
        print(f"{r['name']}: {r.get('error', '')}")
        for c in r["cases"]:
            for n, o in c["outputs"].items():
                if o["mismatches"]:
                    print(
                        f"  {c['class']} {n}: {o['mismatches']} of {o['elements']}, {o['max_ulp']:g} ulp, {o['examples']}"
                    )
    for group, row in summary.items():
        print(
            f"{group:<14} {row['forms']:4} forms, {row['wrong']} wrong, at most {row['max_ulp']:g} ulp where bounded in ulp"
        )
    if changing:
        print(f"not the same on a second run: {', '.join(changing)}")
    print(f"{len(results)} forms in {seconds:.0f} s, {len(wrong)} wrong, {len(left)} not run")
    out.mkdir(parents=True, exist_ok=True)
    record = {"seconds": seconds, "wrong": [r["name"] for r in wrong], "not_run": left, "changing": changing}
    text = json.dumps(record | {"summary": summary, "forms": results}, default=str).replace("Infinity", '"inf"')
    (out / "conformance.json").write_text(text + "\n")
    return len(wrong) + len(left)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("."), help="where conformance.json goes")
    parser.add_argument("--only", action="append", default=[], help="forms whose name contains this (repeatable)")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.action == "build":
        return min(build_all(options.directory, options.only, options.jobs), 1)
    return min(run_all(options.directory, options.out, options.only), 1)


if __name__ == "__main__":
    sys.exit(main())
