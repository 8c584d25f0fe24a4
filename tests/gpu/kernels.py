"""Kernels written by hand in CUDA, to test the launcher apart from the emitter: one with every kind of plain
parameter, one that copies tiles by TMA and shows what lies outside the tensor."""

from __future__ import annotations

from cake.ir import expanded as x
from cake.ir.expr import Apply, Expr, Sym, integer

SCALE_SOURCE = """
extern "C" __global__ void __launch_bounds__(128)
scale(const float* x, float* y, float s, int i, int M, int N, long long stride) {
  for (int row = blockIdx.x; row < M; row += gridDim.x)
    for (int col = threadIdx.x; col < N; col += 128) y[(long long)row * N + col] = x[row * stride + col] * s + i;
}
"""


def scale() -> x.Kernel:
    """y[M, N] = x[M, N] * s + i; x strided."""
    m, n = Sym(name="M"), Sym(name="N")
    return x.Kernel(
        name="scale",
        target="sm_90a",
        tensors=(
            x.Tensor(name="x", dtype="f32", shape=(m, n), strided=True),
            x.Tensor(name="y", dtype="f32", shape=(m, n), direction="out"),
        ),
        scalars=(x.ScalarParam(name="s", dtype="f32"), x.ScalarParam(name="i", dtype="i32")),
        dims=(x.Dim(name="M", tensor="x", axis=0), x.Dim(name="N", tensor="x", axis=1)),
        positions=m,
        grid=Apply(
            op="min",
            args=(m, Apply(op="*", args=(Sym(name="%sms"), Sym(name="%resident")), dtype="i32")),
            dtype="i32",
        ),
        threads=128,
        roles=(),
    )


def tile_source(swizzle: int) -> str:
    """Each CTA loads one 64 x 64 tile of x by TMA and stores it to y, which covers whole tiles."""
    chunk = {0: "c / 8", 128: "(c / 8) ^ (r % 8)"}[swizzle]
    return f"""
typedef unsigned short u16;
struct alignas(64) TensorMap {{ char bytes[128]; }};
extern "C" __global__ void __launch_bounds__(128)
tile(const u16* x, u16* y, int M, int N, int PM, int PN, long long stride, const __grid_constant__ TensorMap map) {{
  extern __shared__ __align__(1024) u16 smem[];
  __shared__ alignas(8) unsigned long long barrier;
  unsigned bar = (unsigned)__cvta_generic_to_shared(&barrier), dst = (unsigned)__cvta_generic_to_shared(smem);
  int tiles = (N + 63) / 64, row = blockIdx.x / tiles * 64, col = blockIdx.x % tiles * 64;
  if (threadIdx.x == 0) {{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }}
  __syncthreads();
  if (threadIdx.x == 0) {{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 8192;" :: "r"(bar) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {{%2, %3}}], [%4];"
                 :: "r"(dst), "l"(&map), "r"(col), "r"(row), "r"(bar) : "memory");
  }}
  unsigned done = 0;
  while (!done)
    asm volatile("{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }}"
                 : "=r"(done) : "r"(bar) : "memory");
  for (int e = threadIdx.x; e < 4096; e += 128) {{
    int r = e / 64, c = e % 64;
    y[(long long)(row + r) * PN + col + c] = smem[r * 64 + ({chunk}) * 8 + c % 8];
  }}
}}
"""


def tile(swizzle: int) -> x.Kernel:
    """y[PM, PN] = x[M, N] with zeros around; x strided, read through a tensor map."""
    m, n, pm, pn = (Sym(name=s) for s in ("M", "N", "PM", "PN"))

    def tiles(e: Expr) -> Expr:
        return Apply(op="cdiv", args=(e, integer(64)), dtype="i32")

    positions = Apply(op="*", args=(tiles(m), tiles(n)), dtype="i32")
    return x.Kernel(
        name="tile",
        target="sm_90a",
        tensors=(
            x.Tensor(name="x", dtype="bf16", shape=(m, n), strided=True),
            x.Tensor(name="y", dtype="bf16", shape=(pm, pn), direction="out"),
        ),
        dims=(
            x.Dim(name="M", tensor="x", axis=0),
            x.Dim(name="N", tensor="x", axis=1),
            x.Dim(name="PM", tensor="y", axis=0),
            x.Dim(name="PN", tensor="y", axis=1),
        ),
        positions=positions,
        grid=positions,
        threads=128,
        shared_bytes=8192,
        maps=(x.TensorMap(name="x.map", tensor="x", box=(64, 64), swizzle=128 if swizzle else 0),),
        roles=(),
    )
