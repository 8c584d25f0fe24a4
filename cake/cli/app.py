"""The commands and their options. Each imports what it needs when it runs, so that every command starts fast."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from cake.cli.outcome import Unread, finish
from cake.cli.settings import parse_settings
from cake.diagnostics import Diagnostic

app = typer.Typer(
    name="cake",
    help="Typed, hardware-explicit schedules for GPU kernels: checked, simulated, compiled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Device(StrEnum):
    """Where ``cake run`` runs."""

    cpu = "cpu"
    gpu = "gpu"


File = Annotated[str, typer.Argument(metavar="FILE", help="A .cake source, an expanded kernel (.json), or -.")]
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Sources; - reads standard input.")]
Sets = Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Constants, dims and scalars.")]
Constants = Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Constants, from their sets.")]
Kernel = Annotated[str | None, typer.Option("--kernel", "-k", metavar="NAME", help="Which kernel of the file.")]
Target = Annotated[str | None, typer.Option("--target", "-t", metavar="ARCH", help="Which target of the kernel.")]
Hints = Annotated[bool, typer.Option("--hints/--no-hints", help="Say what could be faster; never blocks.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object: ok, diagnostics, result.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the trace of an error.")]


@app.command()
def check(
    files: Files,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Run the verifier.")] = True,
    prove: Annotated[bool, typer.Option("--prove", help="Take the time for a proof, as build does.")] = False,
    hints: Hints = True,
    timeline: Annotated[
        str | None,
        typer.Option("--timeline", metavar="OUT.html", help="Draw the launch that fails, else a small one (one FILE)."),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option("--kernel", "-k", metavar="NAME", help="Which kernel --timeline draws.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Report every finding of each file; the exit code is 1 if one blocks."""
    from cake.cli.checking import Drawing, check_files

    drawing = Drawing(timeline, kernel) if timeline is not None else None
    found, advice, result, text = check_files(
        files, "full" if prove else "quick" if verify else None, hints=hints, drawing=drawing
    )
    _end(found, result, as_json=as_json, text=text, advice=advice)


@app.command()
def expand(
    file: File,
    settings: Constants = None,
    kernel: Kernel = None,
    target: Target = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show everything that is derived, each line with its reason. --json gives what check, run and build take again."""
    from cake.cli import sources
    from cake.expand.show import show_kernel, show_sequence
    from cake.ir.sequences import Sequence

    source = sources.read(file)
    found = sources.expand_any(source, kernel, parse_settings(settings or ()), target)
    if isinstance(found, Sequence):
        return _end(
            result={"sequence": json.loads(found.model_dump_json())}, as_json=as_json, text=show_sequence(found)
        )
    if as_json:
        _end(result={"kernel": json.loads(found.model_dump_json())}, as_json=True)
    _end(as_json=False, text=show_kernel(found))


@app.command()
def fmt(
    files: Files,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a file would change.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; show what would change.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Rewrite sources in the canonical form."""
    from cake.cli.formatting import format_files

    found, result, text, code = format_files(files, check=check, diff=diff)
    _end(found, result, as_json=as_json, text=text, code=code)


@app.command()
def build(
    file: File,
    settings: Constants = None,
    kernel: Kernel = None,
    target: Target = None,
    emit: Annotated[
        list[str] | None, typer.Option("--emit", metavar="cu,ptx,cubin,sass,expand", help="What to write.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Where to write (default build/FILE, or build/FILE/KERNEL)."
        ),
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="CODE", help="Build in spite of this finding.")
    ] = None,
    hints: Hints = True,
    chaos: Annotated[
        int | None,
        typer.Option(
            "--chaos", metavar="SEED", min=0, max=2**32 - 1, help="With delays and poison, to provoke what is wrong."
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compile a kernel and report what it uses; all kernels of a file, a directory each, unless --kernel names one."""
    from cake.cli.artifacts import build_file

    found, advice, result, text = build_file(
        file,
        parse_settings(settings or ()),
        kernel=kernel,
        target=target,
        emit=emit or (),
        output=output,
        allow=allow or (),
        chaos=chaos,
        hints=hints,
    )
    _end(found, result, as_json=as_json, text=text, advice=advice)


@app.command()
def run(
    file: File,
    settings: Sets = None,
    device: Annotated[Device, typer.Option("--device", "-d", help="The simulator, or the first GPU.")] = Device.cpu,
    kernel: Kernel = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the inputs and of the simulated schedule.")] = 0,
    ctas: Annotated[int, typer.Option("--ctas", min=1, max=1024, help="Clusters simulated together.")] = 2,
    check: Annotated[bool, typer.Option("--check", help="Compare with the module's reference.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a kernel on the inputs of the module beside it, or on random ones."""
    from cake.cli.trial import Trial, execute

    trial = Trial(file, parse_settings(settings or ()), kernel, device.value, seed, ctas, check)
    found, result, text = execute(trial)
    _end(found, result, as_json=as_json, text=text)


@app.command()
def bench(
    file: Annotated[
        str, typer.Argument(metavar="FILE|DIR", help="A source, an expanded kernel (.json), or an artifact.")
    ],
    settings: Sets = None,
    peer: Annotated[
        str | None,
        typer.Option("--peer", metavar="MODULE:NAME", help="What to compare with (default: the module's peer)."),
    ] = None,
    const: Annotated[
        list[str] | None, typer.Option("--const", metavar="NAME=VALUE", help="A constant, from its set (repeatable).")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="M=..,N=..", help="Dims and scalars of one shape (repeatable)."),
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", min=30, help="Pairs of calls that are timed.")] = 30,
    goal: Annotated[
        float | None, typer.Option("--goal", help="Exit 1 unless the interval's lower end is above it.")
    ] = None,
    module: Annotated[
        str | None, typer.Option("--module", metavar="FILE.py", help="Instead of the module beside the source.")
    ] = None,
    kernel: Kernel = None,
    target: Target = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the inputs.")] = 0,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds that one shape may take.")] = 300.0,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE.json", help="Where the result goes, with samples.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a kernel beside a peer on the first GPU: errors against float64, paired times from a cold L2."""
    from cake.cli.bench import Bench, execute

    asked = Bench(
        file,
        tuple(settings or ()),
        tuple(const or ()),
        tuple(shape or ()),
        peer=peer,
        module=module,
        kernel=kernel,
        target=target,
        pairs=pairs,
        seed=seed,
        goal=goal,
        timeout=timeout,
        out=out,
    )
    found, result, text = execute(asked)
    _end(found, result, as_json=as_json, text=text)


@app.command()
def explain(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", help="A code, such as S101.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Explain a code: the rule, an example that breaks it and one that keeps it. Without a code: list them."""
    from cake.cli.explaining import explain_code, list_codes

    result, text = explain_code(code) if code is not None else list_codes()
    _end(result=result, as_json=as_json, text=text)


@app.command()
def version(as_json: Json = False, debug: Debug = False) -> None:
    """Versions of Cake and of what it compiles with."""
    import platform
    from importlib import metadata

    import cake

    result: dict[str, Any] = {"cake": cake.__version__, "python": platform.python_version()}
    for package in ("numpy", "nvidia-cuda-nvrtc", "cuda-bindings", "torch"):
        try:
            result[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            result[package] = None
    text = "\n".join(f"{name:<18} {value or 'not installed'}" for name, value in result.items())
    _end(result=result, as_json=as_json, text=text)


def _end(
    found: list[Diagnostic] | tuple[Diagnostic, ...] = (),
    result: dict[str, Any] | None = None,
    *,
    as_json: bool,
    text: str = "",
    code: int | None = None,
    advice: list[Diagnostic] | tuple[Diagnostic, ...] = (),
) -> None:
    """Print the outcome and leave the command with its exit code. ``advice``: findings that are told last."""
    try:
        exit_code = finish(found, result, as_json=as_json, text=text, code=code, advice=advice)
        sys.stdout.flush()
    except BrokenPipeError:
        raise Unread from None
    raise typer.Exit(exit_code)
