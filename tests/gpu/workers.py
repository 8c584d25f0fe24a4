"""What the GPU tests run, each in a process of its own under the watchdog. A worker returns the names of what went
wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cake.diagnostics import CakeError
from cake.runtime import LoadedKernel, load


def _code(call: Callable[[], Any]) -> str | None:
    try:
        call()
    except CakeError as e:
        return e.diagnostics[0].code
    return None


def launching(directory: str) -> list[str]:
    """Streams, graphs, threads, frameworks. Factors are powers of two, so that a fused multiply-add rounds no
    differently."""
    import torch

    wrong: list[str] = []

    def expect(what: str, condition: object) -> None:
        if not condition:
            wrong.append(what)

    k = load(directory)
    x = torch.randn(100, 64, device="cuda")
    want = x * 2.0 + 3

    def fresh() -> Any:
        return torch.full_like(x, float("nan"))

    y = fresh()
    k(x, y, 2.0, 3)
    expect("current stream", torch.equal(y, want))
    y = fresh()
    k(y=y, i=3, s=2.0, x=x)
    expect("keywords", torch.equal(y, want))

    wide = torch.randn(100, 200, device="cuda")
    y = fresh()
    k(wide[:, :64], y, 2.0, 3)
    expect("strided input", torch.equal(y, wide[:, :64] * 2.0 + 3))

    side = torch.cuda.Stream()
    y = fresh()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        k(x, y, 2.0, 3)
        after = side.record_event()
    expect("asynchronous", not after.query())
    after.synchronize()
    expect("side stream", torch.equal(y, want))
    y = fresh()
    torch.cuda.synchronize()
    k(x, y, 2.0, 3, stream=side)
    side.synchronize()
    expect("stream object", torch.equal(y, want))
    k(x, y, 4.0, 3, stream=side.cuda_stream)
    side.synchronize()
    expect("stream handle", torch.equal(y, x * 4.0 + 3))

    late = load(directory)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        expect("capture before the code is loaded", _code(lambda: late(x, y, 2.0, 3)) == "R023")
        torch.zeros(1, device="cuda")  # the capture goes on
    late.prepare()
    early = torch.cuda.CUDAGraph()
    y = fresh()
    torch.cuda.synchronize()
    with torch.cuda.graph(early):
        late(x, y, 2.0, 3)
    early.replay()
    torch.cuda.synchronize()
    expect("capture after prepare, without a call before", torch.equal(y, want))

    graph = torch.cuda.CUDAGraph()
    g_in, g_out = x.clone(), fresh()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    k(g_in, g_out, 2.0, 3)
    expect("no allocation", torch.cuda.memory_allocated() == before)
    g_out.fill_(float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        k(g_in, g_out, 2.0, 3)
    g_in.copy_(x + 1)
    graph.replay()
    torch.cuda.synchronize()
    expect("graph replay", torch.equal(g_out, (x + 1) * 2.0 + 3))

    errors: list[BaseException] = []
    outputs = [fresh() for _ in range(4)]
    torch.cuda.synchronize()

    def work(i: int) -> None:
        try:
            for _ in range(300):
                k(x, outputs[i], 2.0**i, i)
            torch.cuda.synchronize()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expect(f"threads {errors}", not errors)
    expect("thread results", all(torch.equal(outputs[i], x * 2.0**i + i) for i in range(4)))

    class Capsule:
        def __dlpack__(self, stream: Any = None) -> Any:
            return x.__dlpack__(stream=stream)

        def __dlpack_device__(self) -> Any:
            return x.__dlpack_device__()

    y = fresh()
    torch.cuda.synchronize()
    k(Capsule(), y, 2.0, 3, stream=torch.cuda.current_stream())
    torch.cuda.synchronize()
    expect("DLPack", torch.equal(y, want))
    try:
        import cupy
    except ImportError:
        pass
    else:
        a = cupy.asarray(x.cpu().numpy())
        b = cupy.full_like(a, cupy.nan)
        k(a, b, 2.0, 3)
        cupy.cuda.get_current_stream().synchronize()
        expect("CuPy", bool((b == a * 2.0 + 3).all()))
    return wrong + _misuse(k, torch) + (_two_devices(k, torch) if torch.cuda.device_count() > 1 else [])


def _two_devices(k: LoadedKernel, torch: Any) -> list[str]:
    """The kernel runs where its tensors are, whichever device is current, and leaves that device current."""
    wrong = []
    for current in (0, 1):
        for device in (0, 1):
            with torch.cuda.device(current):
                x = torch.randn(100, 64, device=f"cuda:{device}")
                y = torch.full_like(x, float("nan"))
                k(x, y, 2.0, 3)
                if torch.cuda.current_device() != current:
                    wrong.append(f"device {current} is no longer current")
                if not torch.equal(y, x * 2.0 + 3):
                    wrong.append(f"device {device} while {current} is current")
    x = torch.randn(100, 64, device="cuda:0")
    stream = torch.cuda.Stream(device=1)
    if _code(lambda: k(x, torch.empty_like(x), 2.0, 3, stream=stream)) != "R009":
        wrong.append("stream of another device")
    return wrong


def _misuse(k: LoadedKernel, torch: Any) -> list[str]:
    x = torch.randn(100, 64, device="cuda")
    y = torch.empty_like(x)
    n = torch.tensor(3, device="cuda")
    cases: dict[str, tuple[tuple[Any, ...], str]] = {
        "too few": ((x, y), "R001"),
        "too many": ((x, y, 1.0, 1, 2), "R001"),
        "swapped": ((1.0, y, x, 1), "R003"),
        "number for a tensor": ((1.0, y, 1.0, 1), "R006"),
        "device scalar": ((x, y, n, 1), "R003"),
        "float for an integer": ((x, y, 1.0, 1.5), "R003"),
        "dtype": ((x.half(), y, 1.0, 1), "R003"),
        "float64": ((x.double(), y, 1.0, 1), "R003"),
        "rank": ((x[0], y, 1.0, 1), "R002"),
        "shape": ((x, y[:50], 1.0, 1), "R002"),
        "not contiguous": ((x, torch.empty(64, 100, device="cuda").T, 1.0, 1), "R007"),
        "last stride": ((torch.empty(64, 100, device="cuda").T, y, 1.0, 1), "R007"),
        "host": ((x.cpu(), y, 1.0, 1), "R009"),
        "in place": ((x, x, 1.0, 1), "R010"),
        "overlap": ((y.view(-1)[640:].view(90, 64), y[:90], 1.0, 1), "R010"),
        "expanded input": ((x[:1].expand(100, 64), y, 1.0, 1), ""),
        "meta": ((torch.empty(100, 64, device="meta"), y, 1.0, 1), "R009"),
        "one zero dim": ((x[:0], y[:0], 1.0, 1), ""),
    }
    wrong = []
    for what, (args, code) in cases.items():
        found = _code(lambda args=args: k(*args)) or ""  # type: ignore[misc]
        if found != code:
            wrong.append(f"{what}: {found or 'accepted'}, not {code}")
    torch.cuda.synchronize()
    return wrong


def tiles(directory: str) -> list[str]:
    """Tensor maps: whole and ragged tiles, padded and offset inputs; zeros outside."""
    import torch

    wrong: list[str] = []
    k = load(directory)
    for m, n, pad in ((64, 64, 0), (128, 192, 0), (100, 72, 0), (1, 8, 0), (65, 136, 8), (200, 64, 64)):
        x = torch.randn(m, n + pad, device="cuda").bfloat16()[:, :n]
        pm, pn = -(-m // 64) * 64, -(-n // 64) * 64
        y = torch.full((pm, pn), float("nan"), device="cuda", dtype=torch.bfloat16)
        k(x, y)
        want = torch.zeros_like(y)
        want[:m, :n] = x
        torch.cuda.synchronize()
        if not torch.equal(y, want):
            bad = (y != want).nonzero()[0].tolist()
            wrong.append(f"{m}x{n} padded by {pad}: first at {bad}, got {y[tuple(bad)]}, want {want[tuple(bad)]}")
    big = torch.randn(64, 80, device="cuda").bfloat16()
    y = torch.empty(64, 64, device="cuda", dtype=torch.bfloat16)
    for what, x, code in (
        ("pointer off by 2 bytes", big[:, 1:65], "R008"),
        ("row of 66 elements", torch.randn(64, 66, device="cuda").bfloat16()[:, :64], "R007"),
    ):
        found = _code(lambda x=x: k(x, y))  # type: ignore[misc]
        if found != code:
            wrong.append(f"{what}: {found or 'accepted'}, not {code}")
    return wrong
