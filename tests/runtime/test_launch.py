"""Guards, packing and launches against a driver in Python."""

from __future__ import annotations

import ctypes
import struct

import pytest

from cake.codegen.build import ParameterInfo
from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.ir.expr import Apply, Sym, integer
from cake.runtime import driver as driver_module
from cake.runtime import load, packing
from cake.runtime.launcher import LoadedKernel
from tests.expanded.gemm import gemm
from tests.runtime.fakes import CONTEXT, FakeBindings, FakeTensor, artifact, at, fake_driver


def tensors(m: int = 256, n: int = 512, k: int = 128) -> list[FakeTensor]:
    return [
        FakeTensor((m, k), pointer=at(0)),
        FakeTensor((n, k), pointer=at(100)),
        FakeTensor((m, n), pointer=at(200)),
    ]


def loaded(kernel: x.Kernel | None = None, **options: object) -> tuple[LoadedKernel, FakeBindings]:
    driver, library = fake_driver(**options)
    return load(artifact(kernel or gemm()), driver=driver), library


def code_of(kernel: LoadedKernel, *args: object, **kwargs: object) -> tuple[str, str]:
    with pytest.raises(CakeError) as e:
        kernel(*args, **kwargs)
    first = e.value.diagnostics[0]
    assert first.help, "every refusal has a way out"
    return first.code, first.message


def test_launch_reaches_the_driver() -> None:
    k, cuda = loaded()
    k(*tensors(), stream=77)
    (launch,) = cuda.launches
    assert launch.grid == (4, 1, 1)  # 2 x 2 tiles are fewer than 132 SMs
    assert launch.block == (384, 1, 1)
    assert launch.stream == 77 and launch.cluster == 1
    assert launch.context == CONTEXT, "the device's context is current during the launch"
    assert not cuda.stack, "and not after it"
    assert cuda.function_attributes["MAX_DYNAMIC_SHARED_SIZE_BYTES"] == k.kernel.shared_bytes
    values = [ctypes.c_uint64.from_address(p).value for p in launch.parameters]
    assert values == [at(0), at(100), at(200)]


def test_grid_is_bounded_by_the_device() -> None:
    k, cuda = loaded()
    k(*tensors(8192, 8192, 64))
    assert cuda.launches[-1].grid == (132, 1, 1)


def test_tensor_maps_are_encoded_once() -> None:
    k, cuda = loaded()
    for _ in range(3):
        k(*tensors())
    assert len(cuda.encoded) == 3 and len(cuda.launches) == 3
    assert cuda.encoded[0] == {
        "pointer": at(0),
        "type": "BFLOAT16",
        "extents": [128, 256],
        "strides": [256],
        "box": [64, 128],
        "swizzle": "128B",
    }
    a, b, c = tensors()
    k(FakeTensor(a.shape, pointer=at(50)), b, c)
    assert len(cuda.encoded) == 4, "only the map of the tensor that moved"


def test_keywords_and_order() -> None:
    k, cuda = loaded()
    a, b, c = tensors()
    k(a, c=c, b=b)
    assert [ctypes.c_uint64.from_address(p).value for p in cuda.launches[0].parameters] == [at(0), at(100), at(200)]
    assert code_of(k, a, b) == ("R001", "gemm takes 3 arguments, 2 were given; missing: c.")
    assert code_of(k, a, b, c, c)[0] == "R001"
    assert code_of(k, a, b, a=c)[0] == "R001"
    assert code_of(k, a, b, d=c)[0] == "R001"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({0: 3.5}, "R006"),
        ({0: None}, "R006"),
        ({0: "a"}, "R006"),
        ({0: FakeTensor((256, 128), dtype="float16")}, "R003"),
        ({0: FakeTensor((256,))}, "R002"),
        ({1: FakeTensor((512, 64), pointer=at(100))}, "R002"),
        ({2: FakeTensor((255, 512), pointer=at(200))}, "R002"),
        ({0: FakeTensor((256, 128), strides=(136, 1))}, "R007"),
        ({0: FakeTensor((256, 128), strides=(1, 256))}, "R007"),
        ({0: FakeTensor((256, 128), pointer=at(0) + 2)}, "R008"),
        ({1: FakeTensor((512, 128), pointer=at(100, device=1))}, "R009"),
        ({1: FakeTensor((512, 128), pointer=4096)}, "R009"),
        ({2: FakeTensor((256, 512), pointer=at(0))}, "R010"),
        ({2: FakeTensor((256, 512), pointer=at(100) + 65536)}, "R010"),
    ],
)
def test_bad_tensors_are_refused(change: dict[int, object], code: str) -> None:
    k, cuda = loaded()
    args = [change.get(i, t) for i, t in enumerate(tensors())]
    found, message = code_of(k, *args)
    assert found == code, message
    assert not cuda.launches
    k(*tensors())
    assert len(cuda.launches) == 1, "a refusal leaves nothing behind"


def test_guards_name_the_condition() -> None:
    k, _ = loaded()
    code, message = code_of(k, *tensors(k=12))
    assert code == "R005" and "K % 8 == 0" in message


def test_zero_sizes() -> None:
    k, cuda = loaded()
    k(*tensors(m=0))
    k(*tensors(m=0))
    assert not cuda.launches, "nothing to do when every output is empty"
    assert code_of(k, *tensors(k=0))[0] == "R004"


def test_wrong_device() -> None:
    k, _ = loaded(capability=(10, 0))
    code, message = code_of(k, *tensors())
    assert code == "R014" and "sm_100" in message
    k, _ = loaded(occupancy=0)
    assert code_of(k, *tensors())[0] == "R015"


def test_a_failed_launch_is_a_diagnostic() -> None:
    k, _ = loaded(launch_code=700)
    with pytest.raises(CakeError) as e:
        k(*tensors())
    assert e.value.diagnostics[0].code == "R018"
    assert "CUDA_ERROR_ILLEGAL_ADDRESS: it is not real" in e.value.diagnostics[0].facts


class Missing:
    """The bindings on a machine without a driver."""

    def cuInit(self, flags: int) -> None:
        raise RuntimeError("Failed to dlopen libcuda.so.1")


@pytest.mark.parametrize(
    ("bindings", "code", "text"),
    [
        (Missing(), "R016", "no CUDA driver"),
        (FakeBindings(init_code=100), "R017", "no device"),
        (FakeBindings(devices=0), "R017", "no device"),
        (FakeBindings(init_code=999), "R018", "Initialising CUDA"),
    ],
)
def test_no_driver_and_no_device(monkeypatch: pytest.MonkeyPatch, bindings: object, code: str, text: str) -> None:
    monkeypatch.setattr(driver_module, "_loaded", None)
    monkeypatch.setattr(driver_module, "bindings", lambda: bindings)
    found, message = code_of(load(artifact(gemm())), *tensors())
    assert found == code and text in message


def test_the_driver_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "_loaded", None)
    monkeypatch.setattr(driver_module, "bindings", FakeBindings)
    assert driver_module.driver() is driver_module.driver()
    assert driver_module.driver().device_count() == 2


def test_devices_are_loaded_apart() -> None:
    k, cuda = loaded()
    k(*tensors())
    second = [FakeTensor(t.shape, pointer=t.pointer + (1 << 30)) for t in tensors()]
    k(*second)
    assert cuda.modules == 2
    assert [launch.context for launch in cuda.launches] == [CONTEXT, CONTEXT + 1]


def scaled() -> x.Kernel:
    """y[N] = x[N] * s, as far as the launcher sees it: a scalar, a strided tensor, no maps."""
    n, m = Sym(name="N"), Sym(name="M")
    return x.Kernel(
        name="scale",
        target="sm_80",
        tensors=(
            x.Tensor(name="x", dtype="f32", shape=(m, n), strided=True),
            x.Tensor(name="y", dtype="f32", shape=(m, n), direction="out"),
        ),
        scalars=(x.ScalarParam(name="s", dtype="f32"), x.ScalarParam(name="i", dtype="i32")),
        dims=(x.Dim(name="M", tensor="x", axis=0), x.Dim(name="N", tensor="x", axis=1)),
        positions=m,
        grid=Apply(op="cdiv", args=(m, integer(2)), dtype="i32"),
        cluster=2,
        threads=128,
        roles=(),
    )


def test_scalars_strides_and_clusters() -> None:
    k, cuda = loaded(scaled(), capability=(8, 6))
    a = FakeTensor((5, 8), dtype="float32", strides=(12, 1))
    b = FakeTensor((5, 8), dtype="float32", pointer=at(10))
    k(a, b, 1.5, -7)
    (launch,) = cuda.launches
    assert launch.cluster == 2 and launch.grid == (6, 1, 1)
    call = next(iter(k._calls.values()))
    block = call.block
    assert block is not None
    by_name = {(s.kind, s.name): s for s in k._layout.slots}
    assert struct.unpack("<f", block.read(by_name["scalar", "s"].offset, 4)) == (1.5,)
    assert struct.unpack("<i", block.read(by_name["scalar", "i"].offset, 4)) == (-7,)
    assert struct.unpack("<q", block.read(by_name["stride", "x"].offset, 8)) == (12,)
    assert struct.unpack("<i", block.read(by_name["dim", "N"].offset, 4)) == (8,)
    assert code_of(k, a, b, "no", 1)[0] == "R003"
    assert code_of(k, a, b, 1.0, 1 << 40)[0] == "R003"
    assert code_of(k, a, b, 1.0, 2.5)[0] == "R003"
    assert code_of(k, a, b, a, 2)[0] == "R003"
    before = len(k._calls)
    k(a, b, -0.0, 1)
    k(a, b, 0.0, 1)
    assert len(k._calls) == before + 2, "-0.0 is not 0.0"


def test_layout_aligns_maps() -> None:
    layout = packing.layout(gemm(), artifact(gemm()).parameters)
    assert [s.kind for s in layout.slots] == ["tensor"] * 3 + ["dim"] * 3 + ["map"] * 3
    assert [s.offset for s in layout.slots] == [0, 8, 16, 24, 28, 32, 64, 192, 320]
    block = packing.Block(layout)
    assert block.address % 64 == 0
    assert [(p or 0) - block.address for p in block.pointers] == [s.offset for s in layout.slots]


def test_the_cache_of_calls_is_bounded() -> None:
    k, _ = loaded()
    a, b, c = tensors()
    for i in range(700):
        k(FakeTensor(a.shape, pointer=at(0) + 256 * i), b, c)
    assert len(k._calls) <= 512


def test_a_persistent_grid_counts_the_clusters_that_fit() -> None:
    """The device holds fewer clusters than its SMs alone would allow; the grid is in CTAs."""
    positions = Sym(name="M")
    fits = Apply(op="min", args=(positions, Sym(name="%clusters")), dtype="i32")
    k, cuda = loaded(scaled().model_copy(update={"grid": fits, "schedule": "persistent"}), capability=(8, 6))
    a, b = FakeTensor((500, 8), dtype="float32", strides=(12, 1)), FakeTensor((500, 8), dtype="float32", pointer=at(10))
    k(a, b, 1.5, -7)
    assert cuda.launches[0].cluster == 2 and cuda.launches[0].grid == (2 * (132 // 2 - 2), 1, 1)


def test_a_cluster_that_does_not_fit() -> None:
    k, cuda = loaded(scaled(), capability=(8, 6))
    cuda.sms = (4, 4)
    a, b = FakeTensor((5, 8), dtype="float32", strides=(12, 1)), FakeTensor((5, 8), dtype="float32", pointer=at(10))
    assert code_of(k, a, b, 1.5, -7)[0] == "R015"


def test_chaos_seeds() -> None:
    """A chaos build is launched with its stored seed, then with whatever `reseed` says; other builds take none."""
    plain = artifact(gemm())
    seed = ParameterInfo(kind="seed", name="chaos seed", ctype="uint32_t", bytes=4)
    chaos = plain.model_copy(update={"chaos": 7, "parameters": (*plain.parameters, seed)})
    driver, cuda = fake_driver()
    k = LoadedKernel(chaos, driver=driver)
    seeds = []
    for new in (None, 4294967295, 0):
        if new is not None:
            k.reseed(new)
        block = k.prepared(*tensors()).block
        assert block is not None
        place = block.pointers[len(plain.parameters)]
        assert place is not None
        seeds.append(ctypes.c_uint32.from_address(place).value)
    assert seeds == [7, 4294967295, 0] and not cuda.launches
    for refused, wrong in ((k, 1 << 32), (loaded()[0], 1)):
        with pytest.raises(CakeError) as e:
            refused.reseed(wrong)
        assert [d.code for d in e.value.diagnostics] == ["R001"] and e.value.diagnostics[0].help
