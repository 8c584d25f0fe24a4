// ---- red.relaxed.gpu (PTX ISA 9.7.13.6) ----

__device__ __forceinline__ void reduce_add_global(float *p, float x)
{
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" :: "l"(p), "f"(x) : "memory");
}

// Vectors, from sm_90 on: each element is combined by itself.
__device__ __forceinline__ void reduce_add_global(float *p, float x, float y)
{
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" :: "l"(p), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void reduce_add_global(float *p, float x, float y, float z, float w)
{
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "l"(p), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}

__device__ __forceinline__ void reduce_add_global(int *p, int x)
{
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" :: "l"(p), "r"(x) : "memory");
}

__device__ __forceinline__ void reduce_max_global(int *p, int x)
{
    asm volatile("red.relaxed.gpu.global.max.s32 [%0], %1;" :: "l"(p), "r"(x) : "memory");
}

__device__ __forceinline__ void reduce_min_global(int *p, int x)
{
    asm volatile("red.relaxed.gpu.global.min.s32 [%0], %1;" :: "l"(p), "r"(x) : "memory");
}

// f32 order is the order of its bits as signed integers where the sign is clear, and their reverse where it is set.
__device__ __forceinline__ void reduce_max_global(float *p, float x)
{
    if (__float_as_int(x) >= 0)
        asm volatile("red.relaxed.gpu.global.max.s32 [%0], %1;" :: "l"(p), "r"(__float_as_int(x)) : "memory");
    else
        asm volatile("red.relaxed.gpu.global.min.u32 [%0], %1;" :: "l"(p), "r"(__float_as_int(x)) : "memory");
}

__device__ __forceinline__ void reduce_min_global(float *p, float x)
{
    if (__float_as_int(x) >= 0)
        asm volatile("red.relaxed.gpu.global.min.s32 [%0], %1;" :: "l"(p), "r"(__float_as_int(x)) : "memory");
    else
        asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" :: "l"(p), "r"(__float_as_int(x)) : "memory");
}

__device__ __forceinline__ void reduce_add_shared(uint32_t a, float x)
{
    asm volatile("red.relaxed.cta.shared.add.f32 [%0], %1;" :: "r"(a), "f"(x) : "memory");
}

__device__ __forceinline__ void reduce_add_shared(uint32_t a, int x)
{
    asm volatile("red.relaxed.cta.shared.add.s32 [%0], %1;" :: "r"(a), "r"(x) : "memory");
}

__device__ __forceinline__ void reduce_max_shared(uint32_t a, int x)
{
    asm volatile("red.relaxed.cta.shared.max.s32 [%0], %1;" :: "r"(a), "r"(x) : "memory");
}

__device__ __forceinline__ void reduce_min_shared(uint32_t a, int x)
{
    asm volatile("red.relaxed.cta.shared.min.s32 [%0], %1;" :: "r"(a), "r"(x) : "memory");
}

__device__ __forceinline__ void reduce_max_shared(uint32_t a, float x)
{
    if (__float_as_int(x) >= 0)
        asm volatile("red.relaxed.cta.shared.max.s32 [%0], %1;" :: "r"(a), "r"(__float_as_int(x)) : "memory");
    else
        asm volatile("red.relaxed.cta.shared.min.u32 [%0], %1;" :: "r"(a), "r"(__float_as_int(x)) : "memory");
}

__device__ __forceinline__ void reduce_min_shared(uint32_t a, float x)
{
    if (__float_as_int(x) >= 0)
        asm volatile("red.relaxed.cta.shared.min.s32 [%0], %1;" :: "r"(a), "r"(__float_as_int(x)) : "memory");
    else
        asm volatile("red.relaxed.cta.shared.max.u32 [%0], %1;" :: "r"(a), "r"(__float_as_int(x)) : "memory");
}

// ---- flags between CTAs ----

__device__ __forceinline__ void signal(int *flag, int value)
{
    asm volatile("st.release.gpu.global.s32 [%0], %1;" :: "l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ void wait_until(const int *flag, int value)
{
    int seen;
    do
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    while (seen != value);
}

// A number from a counter that wraps to zero after `last` (PTX ISA 9.7.13.5).
__device__ __forceinline__ int draw(int *counter, int last)
{
    int old;
    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(counter), "r"(last) : "memory");
    return old;
}
