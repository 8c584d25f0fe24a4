"""``cake run --device gpu``: one launch on device 0, in a process that can be killed when the kernel hangs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from cake.cli.progress import working
from cake.ir import expanded as x
from cake.ir.sequences import Sequence

if TYPE_CHECKING:
    from cake.runtime import LoadedSequence

TIMEOUT = 120.0


class Resident:
    """An array in device memory, as the runtime reads one."""

    def __init__(self, pointer: int, array: Any) -> None:
        self.dtype = array.dtype
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "strides": None,
            "typestr": array.dtype.str,
            "data": (pointer, False),
        }


def launch(kernel: x.Kernel | Sequence, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of one launch. Outputs that are only written start with the pattern that nothing writes."""
    from cake.machine.registers import poison
    from cake.runtime import driver, watchdog

    driver.driver()  # no driver or no device is said before anything is compiled
    given = dict(arguments)
    for t in kernel.tensors:
        if t.direction == "out":
            given[t.name] = poison(t.dtype, given[t.name].shape)
    outputs = [t.name for t in kernel.tensors if t.direction != "in"]
    what = f"running {kernel.name}"
    with TemporaryDirectory(prefix="cake-") as place:
        build_into(kernel, Path(place))
        with working(what):
            result: dict[str, Any] = watchdog.run(_child, Path(place), given, outputs, timeout=TIMEOUT, what=what)
    return result


def build_into(kernel: x.Kernel | Sequence, directory: Path) -> None:
    """Compile a kernel or a sequence into the directory of an artifact that can be loaded."""
    from cake.codegen.build import build, write
    from cake.codegen.sequences import build_sequence, write_sequence

    with working(f"compiling {kernel.name}"):
        if isinstance(kernel, Sequence):
            write_sequence(build_sequence(kernel), directory)
        else:
            write(build(kernel), directory)


def _child(place: Path, arguments: Mapping[str, Any], outputs: list[str]) -> dict[str, Any]:
    import numpy as np

    from cake.runtime import LoadedSequence, load

    loaded = load(place)
    device = _Memory()
    passed: dict[str, Any] = {}
    for name, value in arguments.items():
        array = np.ascontiguousarray(value) if isinstance(value, np.ndarray) else None
        passed[name] = value if array is None else Resident(device.upload(array), array)
    if isinstance(loaded, LoadedSequence):
        loaded(**passed, workspace=device.workspace(loaded, passed), stream=0)
    else:
        loaded(**passed, stream=0)
    device.finish()
    return {n: device.download(passed[n], arguments[n]) for n in outputs}


class _Memory:
    """Device memory through the driver, in the primary context that the runtime launches in."""

    def __init__(self) -> None:
        from cake.runtime.driver import driver

        self._driver = driver()
        self._driver.push(self._driver.primary_context(0))

    def upload(self, array: Any) -> int:
        """A copy of a contiguous array on the device."""
        pointer = self._driver.call("Allocating device memory", "cuMemAlloc", max(array.nbytes, 1))
        if array.nbytes:
            self._driver.call("Copying to the device", "cuMemcpyHtoD", pointer, array.ctypes.data, array.nbytes)
        return int(pointer)

    def workspace(self, loaded: LoadedSequence, passed: Mapping[str, Any]) -> dict[str, Resident]:
        """Workspace of a sequence: zeros, which is more than it needs."""
        import numpy as np

        from cake.ir.dtypes import numpy_dtype

        shapes = loaded.workspace_shapes(**passed)
        arrays = {n: np.zeros(shape, numpy_dtype(dtype)) for n, (shape, dtype) in shapes.items()}
        return {n: Resident(self.upload(a), a) for n, a in arrays.items()}

    def finish(self) -> None:
        """Wait for the launch."""
        self._driver.synchronize()

    def download(self, resident: Resident, like: Any) -> Any:
        """The array back on the host."""
        import numpy as np

        out = np.empty_like(like, order="C")
        pointer = resident.__cuda_array_interface__["data"][0]
        if out.nbytes:
            self._driver.call("Copying from the device", "cuMemcpyDtoH", out.ctypes.data, pointer, out.nbytes)
        return out
