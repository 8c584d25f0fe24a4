"""Devices, contexts, streams and graphs: each launch goes to the device of its tensors and leaves no trace; nothing on the
way allocates, copies or waits."""

from __future__ import annotations

import threading

import pytest

from cake.diagnostics import CakeError
from cake.runtime import load
from cake.runtime.launcher import LoadedKernel
from tests.expanded.gemm import gemm
from tests.runtime.fakes import CONTEXT, FakeBindings, FakeTensor, artifact, at, fake_driver

QUIET = {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuCtxGetDevice", "cuLaunchKernelEx"}
QUIET |= {"cuStreamIsCapturing", "cuStreamGetCtx", "cuPointerGetAttribute", "cuTensorMapEncodeTiled"}
"""What a launch may call once its code is loaded: none of it allocates, copies or waits."""

LOADING = {"cuDeviceGet", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuModuleLoadData", "cuModuleGetFunction"}
LOADING |= {"cuFuncSetAttribute", "cuOccupancyMaxActiveBlocksPerMultiprocessor"}


def tensors(device: int = 0, m: int = 8192) -> list[FakeTensor]:
    return [
        FakeTensor((m, 128), pointer=at(0, device)),
        FakeTensor((512, 128), pointer=at(300, device)),
        FakeTensor((m, 512), pointer=at(600, device)),
    ]


def loaded(**options: object) -> tuple[LoadedKernel, FakeBindings]:
    driver, cuda = fake_driver(**options)
    return load(artifact(gemm()), driver=driver), cuda


def test_grids_are_by_device() -> None:
    k, cuda = loaded(sms=(132, 20), occupancy=(1, 2))
    k(*tensors(0))
    k(*tensors(1))
    k(*tensors(0))
    assert [launch.grid[0] for launch in cuda.launches] == [128, 40, 128]
    assert [launch.context - CONTEXT for launch in cuda.launches] == [0, 1, 0]
    assert cuda.modules == 2
    assert len({launch.function for launch in cuda.launches}) == 2


@pytest.mark.parametrize("current", [[], [CONTEXT], [CONTEXT + 1], [CONTEXT + 1, CONTEXT]])
def test_the_current_device_stays(current: list[int]) -> None:
    k, cuda = loaded()
    cuda.stack[:] = current
    for device in (0, 1, 1, 0):
        k(*tensors(device))
        assert cuda.launches[-1].context == CONTEXT + device
        assert cuda.stack == current


def test_the_current_device_stays_after_a_failure() -> None:
    k, cuda = loaded()
    k(*tensors(0))
    cuda.launch_code = 700
    with pytest.raises(CakeError):
        k(*tensors(0))
    assert cuda.stack == []
    cuda.occupancy, cuda.launch_code = 0, 0
    with pytest.raises(CakeError):
        k(*tensors(1))
    assert cuda.stack == []
    cuda.occupancy = 1
    k(*tensors(1))
    assert cuda.launches[-1].context == CONTEXT + 1, "a failed load is tried again"


def test_nothing_allocates_or_waits() -> None:
    k, cuda = loaded()
    k(*tensors(), stream=7)
    assert set(cuda.calls) <= QUIET | LOADING
    cuda.calls.clear()
    k(*tensors(m=4096), stream=7)
    assert set(cuda.calls) <= QUIET
    cuda.stack[:] = [CONTEXT]
    k(*tensors(), stream=7)
    cuda.calls.clear()
    k(*tensors(), stream=7)
    assert cuda.calls == ["cuCtxGetCurrent", "cuLaunchKernelEx"], "a call seen before looks up and launches"


def test_a_capture_needs_the_code_loaded() -> None:
    k, cuda = loaded()
    cuda.capturing = True
    with pytest.raises(CakeError) as e:
        k(*tensors(), stream=7)
    assert e.value.diagnostics[0].code == "R023"
    assert "prepare(0)" in (e.value.diagnostics[0].help or "")
    assert not set(cuda.calls) & LOADING
    k.prepare(0)
    cuda.calls.clear()
    k(*tensors(), stream=7)
    assert len(cuda.launches) == 1 and set(cuda.calls) <= QUIET
    with pytest.raises(CakeError):
        k(*tensors(1), stream=1007)


def test_a_stream_of_another_device() -> None:
    k, cuda = loaded()
    k(*tensors(1), stream=1007)
    with pytest.raises(CakeError) as e:
        k(*tensors(0), stream=1007)
    assert e.value.diagnostics[0].code == "R009" and "device 1" in e.value.diagnostics[0].message
    for default in (0, 1, 2):
        k(*tensors(1), stream=default)
    assert [launch.stream for launch in cuda.launches] == [1007, 0, 1, 2]
    assert cuda.stack == []


def test_prepare_names_a_device() -> None:
    k, _ = loaded()
    assert k.prepare(1) is k.prepare(1)
    assert (k.prepare(1).ordinal, k.prepare().ordinal) == (1, 0)
    with pytest.raises(CakeError) as e:
        k.prepare(7)
    assert e.value.diagnostics[0].code == "R018"


def test_threads_load_once_and_launch_their_own() -> None:
    k, cuda = loaded(devices=1)
    gate = threading.Barrier(4)

    def work(i: int) -> None:
        gate.wait()
        for _ in range(50):
            k(
                FakeTensor((128, 128), pointer=at(i)),
                FakeTensor((512, 128), pointer=at(300)),
                FakeTensor((128, 512), pointer=at(600 + i)),
            )

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert cuda.modules == 1 and len(cuda.launches) == 200
    assert len(k._calls) == 4


def test_prepared_calls_launch_nothing() -> None:
    k, cuda = loaded()
    call = k.prepared(*tensors(), stream=7)
    assert not cuda.launches and call.arguments is not None
    k(*tensors(), stream=7)
    assert len(cuda.launches) == 1 and k.prepared(*tensors(), stream=7) is call
