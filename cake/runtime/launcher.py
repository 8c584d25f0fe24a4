"""Launching a built kernel: ``k = load(artifact)``, then ``k(a, b, c)`` on the caller's stream, into the caller's
outputs.

A call whose arguments (addresses, shapes, strides, dtypes, scalars, stream) were seen before re-uses all checks, the
packed parameters and the encoded tensor maps: it looks up a tuple and launches. New addresses of a known shape repeat
only what depends on addresses. Nothing is allocated on the device and nothing synchronises, so calls can be captured
in a graph; ``prepare`` loads the code beforehand, which a capture requires.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cake.codegen.build import Artifact, read
from cake.diagnostics import CakeError
from cake.ir import binding
from cake.ir.evaluate import compile_expr
from cake.runtime import driver as driver_module
from cake.runtime import errors, guards, packing
from cake.runtime.device import DeviceState, entered, prepare
from cake.runtime.driver import Driver
from cake.runtime.signature import Key, describe, scalar_packer, signature, torch_key
from cake.runtime.streams import current_stream, raw_torch_stream, stream_handle
from cake.runtime.tensors import UNKNOWN_DEVICE, View, is_device_array, view

CALLS_KEPT = 512
GRID_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Call:
    """A launch ready to go. ``arguments`` are the four of cuLaunchKernelEx, None where there is nothing to do;
    ``block`` is the memory they point at. Never changed, so that threads cannot mix their launches."""

    context: int
    arguments: tuple[Any, ...] | None
    block: packing.Block | None = None


NOTHING = Call(0, None)


class LoadedKernel:
    """A callable kernel. Arguments come in the order of declaration, or by keyword; outputs are the caller's.

    ``stream``: a handle, or a torch, CuPy or ``__cuda_stream__`` object; by default the current stream of the
    framework of the first tensor. ``driver`` replaces the CUDA driver (tests)."""

    def __init__(self, artifact: Artifact, *, driver: Driver | None = None) -> None:
        kernel = artifact.kernel
        self.artifact = artifact
        self.kernel = kernel
        self.signature = signature(kernel)
        self.__name__ = kernel.name
        self._tensors = [n for n in self.signature if kernel.tensor(n) is not None]
        self._scalars = [n for n in self.signature if kernel.tensor(n) is None]
        self._dtypes = {t.name: t.dtype for t in kernel.tensors}
        self._first = self.signature.index(self._tensors[0])
        self._driver = driver
        self._seed = artifact.chaos
        self._layout = packing.layout(kernel, artifact.parameters)
        self._access = guards.accesses(kernel)
        self._grid = compile_expr(kernel.grid)
        self._positions = compile_expr(kernel.positions)
        self._torch_key = torch_key(kernel, self.signature)
        self._pack = scalar_packer(kernel, self.signature)
        self._devices: dict[int, DeviceState] = {}
        self._calls: dict[Key, Call] = {}
        self._bound: dict[Key, Mapping[str, Any]] = {}
        self._lock = threading.Lock()
        self._raw_stream: Callable[[int], int] | None = None
        self._launch: Callable[..., tuple[Any, ...]] | None = None
        self._get_current: Callable[..., tuple[Any, ...]] | None = None

    def __repr__(self) -> str:
        return f"<cake kernel {self.kernel.name}({', '.join(self.signature)}) for {self.kernel.target}>"

    def __call__(self, *args: Any, stream: Any = None, **kwargs: Any) -> None:
        """Check the arguments and launch; returns without waiting."""
        if kwargs:
            args = self._positional(args, kwargs)
        call = None
        try:
            if stream is None:
                handle = self._raw_stream(args[self._first].get_device())  # type: ignore[misc]
            else:
                handle = stream if type(stream) is int else stream_handle(stream)
            call = self._calls[self._torch_key(handle, *args)]
        except (KeyError, AttributeError, TypeError, IndexError, RuntimeError, ValueError, struct.error, OverflowError):
            pass  # not seen before, or not for the fast path: `_miss` decides, with words
        if call is None:
            call = self._miss(args, stream)
        if call.arguments is None:
            return
        _, current = self._get_current()  # type: ignore[misc]
        if current is not None and int(current) == call.context:
            (code,) = self._launch(*call.arguments)  # type: ignore[misc]
        else:
            with entered(self._cuda(), call.context):
                (code,) = self._launch(*call.arguments)  # type: ignore[misc]
        if code:
            raise self._cuda().failure(f"Launching {self.kernel.name}", code)

    def check(self, *args: Any, stream: Any = None) -> None:
        """Check the arguments of a call, and make it ready, without launching."""
        self._miss(args, stream)

    def reseed(self, seed: int) -> None:
        """Launch a chaos build with another seed (0 to 2^32 - 1) from now on; R001 for other kernels and seeds."""
        if self._seed is None:
            raise errors.error(
                "R001",
                f"{self.kernel.name} was not built with chaos, so it takes no seed.",
                "build it by `cake build --chaos SEED`",
                span=self.kernel.span,
            )
        if not isinstance(seed, int) or not 0 <= seed < 1 << 32:
            raise errors.error("R001", f"{seed!r} is no seed.", "seeds are 0 to 4294967295", span=self.kernel.span)
        with self._lock:
            self._seed = seed
            self._calls.clear()

    # -- preparation --------------------------------------------------------------------------------------------------

    def prepare(self, device: int | None = None) -> DeviceState:
        """Load the code on a device (the framework's current one by default), so that the first call does no more
        than launch: needed before a graph capture."""
        driver = self._cuda()
        if device is None:
            torch = sys.modules.get("torch")
            device = torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else 0
        state = self._devices.get(device)
        if state is None:
            with self._lock:
                state = self._devices.get(device) or prepare(driver, self.artifact, device)
                self._devices[device] = state
        return state

    def _cuda(self) -> Driver:
        if self._driver is None:
            self._driver = driver_module.driver()
        if self._launch is None:
            self._get_current = self._driver.get_current_raw
            self._launch = self._driver.launch_raw
        return self._driver

    def prepared(self, *args: Any, stream: Any = None) -> Call:
        """The launch of a call, checked and ready but not made; it may be launched while its arguments live."""
        return self._miss(args, stream)

    # -- calls not seen before ----------------------------------------------------------------------------------------

    def _positional(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments in the order of declaration; R001 for one that is missing, unknown or given twice."""
        given = dict(zip(self.signature, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.signature:
                raise self._bad_arguments(f"{self.kernel.name} has no parameter `{name}`")
            if name in given:
                raise self._bad_arguments(f"`{name}` is given twice")
            given[name] = value
        missing = [n for n in self.signature if n not in given]
        if missing or len(args) > len(self.signature):
            raise self._wrong_count(len(args) + len(kwargs), missing)
        return tuple(given[n] for n in self.signature)

    def _bad_arguments(self, message: str) -> CakeError:
        return errors.error("R001", f"{message}.", f"call {describe(self.kernel)}", span=self.kernel.span)

    def _wrong_count(self, given: int, missing: list[str]) -> CakeError:
        what = f"; missing: {', '.join(missing)}" if missing else ""
        return self._bad_arguments(
            f"{self.kernel.name} takes {len(self.signature)} arguments, {given} were given{what}"
        )

    def _miss(self, args: tuple[Any, ...], stream: Any) -> Call:
        """Look the call up by what its arguments are in any framework; make it ready where it is new; remember it."""
        if len(args) != len(self.signature):
            raise self._wrong_count(len(args), list(self.signature[len(args) :]))
        named = dict(zip(self.signature, args, strict=True))
        scalars = {n: named[n] for n in self._scalars}
        for name, value in scalars.items():
            if is_device_array(value):
                raise errors.error(
                    "R003",
                    f"`{name}` is a tensor; it is a scalar, read on the host.",
                    "pass a Python number (reading one from the device would wait for it)",
                    span=self.kernel.span,
                )
        views = {n: view(named[n], n) for n in self._tensors}
        first = named[self._tensors[0]]
        handle = stream_handle(stream) if stream is not None else current_stream(first, views[self._tensors[0]])
        keys: list[Key] = []
        try:
            bits = self._pack(*scalars.values())
            keys.append((handle, tuple(views.values()), tuple(map(type, scalars.values())), bits))
            torch = sys.modules.get("torch")
            if torch is not None and all(isinstance(named[n], torch.Tensor) for n in self._tensors):
                self._raw_stream = raw_torch_stream(torch)
                keys.append(self._torch_key(handle, *args))
        except (struct.error, OverflowError, TypeError):
            pass  # `bind` says what is wrong with a scalar
        call = self._calls.get(keys[0]) if keys else None
        if call is None:
            call = self._new(views, scalars, handle)
        if len(self._calls) >= CALLS_KEPT:
            with self._lock:
                for old in list(self._calls)[: CALLS_KEPT // 4]:
                    self._calls.pop(old, None)
        for key in keys:
            self._calls[key] = call
        return call

    def _new(self, views: dict[str, View], scalars: Mapping[str, Any], stream: int) -> Call:
        """Check everything and make the launch ready."""
        values = self._bind(views, scalars)
        if binding.empty_launch(self.kernel, {n: v.shape for n, v in views.items()}):
            return NOTHING
        driver = self._cuda()
        for name, v in views.items():
            if v.device == UNKNOWN_DEVICE:
                owner = driver.device_of(v.pointer)
                views[name] = v if owner is None else replace(v, device=owner)
        problems = guards.check(self.kernel, self._access, views)
        if problems:
            raise CakeError(*problems)
        device = views[self._tensors[0]].device
        self._check_stream(driver, stream, device)
        state = self.prepare(device)
        grid = self._grid_of(values, state)
        return self._ready(views, values, grid, state, stream) if grid else NOTHING

    def _check_stream(self, driver: Driver, stream: int, device: int) -> None:
        """The stream is one of the device, and a stream that records a graph finds the code loaded: loading it waits
        for the device, which would spoil the graph."""
        if driver.capturing(stream):
            if device not in self._devices:
                raise errors.error(
                    errors.NOT_PREPARED,
                    f"{self.kernel.name} is not loaded on device {device}, and the stream records a graph.",
                    f"call prepare({device}), or the kernel once, before the capture",
                    span=self.kernel.span,
                )
            return
        owner = driver.stream_device(stream)
        if owner is not None and owner != device:
            raise errors.error(
                errors.DEVICE,
                f"The stream belongs to device {owner}, but the tensors are on device {device}.",
                "pass a stream of their device, or none for the current one",
                span=self.kernel.span,
            )

    def _bind(self, views: Mapping[str, View], scalars: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values of dims and scalars; shapes, dtypes and guards are checked. Remembered where there are no
        scalars."""
        shapes = {n: v.shape for n, v in views.items()}
        dtypes = {n: v.dtype for n, v in views.items()}
        key = (*shapes.values(), *dtypes.values())
        values = self._bound.get(key) if not scalars else None
        if values is None:
            for t in self.kernel.tensors:
                if t.dtype == "tf32" and dtypes[t.name] == "f32":  # tf32 is f32 in memory
                    dtypes[t.name] = "tf32"
            try:
                values = binding.bind(self.kernel, shapes, dtypes, scalars)
            except CakeError as e:
                way_out = f"call {describe(self.kernel)}"
                raise CakeError(
                    *(d if d.help else d.model_copy(update={"help": way_out}) for d in e.diagnostics)
                ) from None
            if not scalars:
                if len(self._bound) >= CALLS_KEPT:
                    self._bound.clear()
                self._bound[key] = values
        return values

    def _grid_of(self, values: Mapping[str, Any], state: DeviceState) -> int:
        """CTAs to launch."""
        env = {**values, "%sms": state.sms, "%resident": state.resident, "%clusters": state.clusters}
        positions = int(self._positions(env))
        grid = int(self._grid(env)) * self.kernel.cluster
        if not 0 <= positions <= GRID_LIMIT or not 0 <= grid <= GRID_LIMIT:
            raise errors.error(
                errors.GRID,
                f"{self.kernel.name} has {positions} tiles and a grid of {grid} CTAs here; both must be below 2**31.",
                "split the work into several calls",
                *(f"{d.name} = {values[d.name]}" for d in self.kernel.dims),
                span=self.kernel.span,
            )
        return grid

    def _ready(
        self, views: Mapping[str, View], values: Mapping[str, Any], grid: int, state: DeviceState, stream: int
    ) -> Call:
        """The launch with parameters packed and maps encoded."""
        kernel = self.kernel
        maps = {m.name: state.maps.encode(m, views[m.tensor], self._dtypes[m.tensor]) for m in kernel.maps}
        block = packing.fill(
            self._layout,
            pointers={n: v.pointer for n, v in views.items()},
            strides={n: v.strides for n, v in views.items()},
            values=values,
            maps=maps,
            seed=self._seed or 0,
        )
        arguments = self._cuda().launch_arguments(
            state.function,
            grid=grid,
            threads=kernel.threads,
            shared=kernel.shared_bytes,
            stream=stream,
            cluster=kernel.cluster,
            parameters=block.array,
        )
        return Call(state.context, arguments, block)


def load(artifact: Artifact | Path | str, *, driver: Driver | None = None) -> LoadedKernel:
    """A callable for an artifact, or for the directory of one. The code is loaded on a device at its first use there,
    or by ``prepare``."""
    return LoadedKernel(artifact if isinstance(artifact, Artifact) else read(artifact), driver=driver)
