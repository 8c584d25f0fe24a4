"""Small CUDA sources with ``#line`` directives, as the emitter writes them."""

from __future__ import annotations

SCALE = """
#line 3 "dir/scale.cake"
extern "C" __global__ void __launch_bounds__(128) scale(const float* x, float* y, float s, int i, int M, int N,
                                                        long long stride) {
#line 9 "dir/scale.cake"
  int at = blockIdx.x * 128 + threadIdx.x;
#line 10 "dir/scale.cake"
  if (at < N) y[at] = x[at] * s + i * M + stride;
}
"""

SPILLS = """
extern "C" __global__ void spills(float* a, int n) {
  float x[64];
  for (int i = 0; i < 64; i++) x[i] = a[i * n];
  for (int i = 0; i < 64; i++) a[i * 3] = x[(i * n) & 63];
}
"""

SERIAL = """
__device__ __forceinline__ void mma(float (&d)[4], unsigned long long a, unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
}
#line 7 "dir/serial.cake"
static __device__ void role(float* a, int n, unsigned long long da, unsigned long long db) {
  float d[4] = {0, 0, 0, 0};
  for (int i = 0; i < n; i++) {
    asm volatile("wgmma.fence.sync.aligned;");
    if (a[i] > 0) {
#line 20 "dir/serial.cake"
      mma(d, da + i, db + i);
    }
#line 22 "dir/serial.cake"
    asm volatile("wgmma.commit_group.sync.aligned;");
    d[0] += 1;
    asm volatile("wgmma.wait_group.sync.aligned 1;");
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  a[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
extern "C" __global__ void __launch_bounds__(128, 1) serial(float* a, int n, unsigned long long da,
                                                            unsigned long long db) {
  role(a, n, da, db);
}
"""
