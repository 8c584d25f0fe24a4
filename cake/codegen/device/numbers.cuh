#define infinity __int_as_float(0x7f800000)

// ---- conversions: narrow floats are held as the f32 they convert to ----

// Two f32 as a pair of bf16, the first in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

__device__ __forceinline__ uint16_t pack_bf16(float x)
{
    uint16_t r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ uint32_t pack_f16(float low, float high)
{
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

__device__ __forceinline__ uint16_t pack_f16(float x)
{
    uint16_t r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ uint16_t pack_e4m3(float low, float high)
{
    uint16_t r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
    return r;
}

__device__ __forceinline__ uint8_t pack_e4m3(float x)
{
    return static_cast<uint8_t>(pack_e4m3(x, 0.0f));
}

__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d)
{
    return pack_e4m3(a, b) | static_cast<uint32_t>(pack_e4m3(c, d)) << 16;
}

__device__ __forceinline__ uint16_t pack_e5m2(float low, float high)
{
    uint16_t r;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
    return r;
}

__device__ __forceinline__ uint8_t pack_e5m2(float x)
{
    return static_cast<uint8_t>(pack_e5m2(x, 0.0f));
}

__device__ __forceinline__ uint32_t pack_e5m2(float a, float b, float c, float d)
{
    return pack_e5m2(a, b) | static_cast<uint32_t>(pack_e5m2(c, d)) << 16;
}

__device__ __forceinline__ uint8_t pack_i8(int a)
{
    return static_cast<uint8_t>(a);
}

__device__ __forceinline__ uint16_t pack_i8(int a, int b)
{
    return static_cast<uint16_t>((a & 255) | b << 8);
}

__device__ __forceinline__ uint32_t pack_i8(int a, int b, int c, int d)
{
    return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | static_cast<uint32_t>(d) << 24;
}

__device__ __forceinline__ uint8_t pack_u8(int a)
{
    return pack_i8(a);
}

__device__ __forceinline__ uint16_t pack_u8(int a, int b)
{
    return pack_i8(a, b);
}

__device__ __forceinline__ uint32_t pack_u8(int a, int b, int c, int d)
{
    return pack_i8(a, b, c, d);
}

// Element `i` of a word.
__device__ __forceinline__ float bf16_at(uint32_t word, int i)
{
    return __uint_as_float(i ? word & 0xffff0000u : word << 16);
}

__device__ __forceinline__ float f16_at(uint32_t word, int i)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(static_cast<uint16_t>(word >> 16 * i)));
    return r;
}

__device__ __forceinline__ float e4m3_at(uint32_t word, int i)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16_t>(word >> 16 * (i / 2))));
    return f16_at(pair, i % 2);
}

__device__ __forceinline__ float e5m2_at(uint32_t word, int i)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16_t>(word >> 16 * (i / 2))));
    return f16_at(pair, i % 2);
}

__device__ __forceinline__ int i8_at(uint32_t word, int i)
{
    return static_cast<signed char>(word >> 8 * i);
}

__device__ __forceinline__ int u8_at(uint32_t word, int i)
{
    return word >> 8 * i & 255;
}

__device__ __forceinline__ float round_bf16(float x)
{
    return bf16_at(pack_bf16(x), 0);
}

__device__ __forceinline__ float round_f16(float x)
{
    return f16_at(pack_f16(x), 0);
}

__device__ __forceinline__ float round_e4m3(float x)
{
    return e4m3_at(pack_e4m3(x), 0);
}

__device__ __forceinline__ float round_e5m2(float x)
{
    return e5m2_at(pack_e5m2(x), 0);
}

__device__ __forceinline__ float round_tf32(float x)
{
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return __uint_as_float(r);
}

// Towards zero, clamped, NaN to 0: cvt.rzi does it for 32 bits, min and max for 8.
__device__ __forceinline__ int to_i8(float x)
{
    return max(-128, min(127, int(x)));
}

__device__ __forceinline__ int to_u8(float x)
{
    return max(0, min(255, int(x)));
}

// ---- integers: quotients round down, as in Python ----

__device__ __forceinline__ int floor_div(int a, int b)
{
    const int q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

__device__ __forceinline__ int64_t floor_div(int64_t a, int64_t b)
{
    const int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

__device__ __forceinline__ int floor_mod(int a, int b)
{
    const int r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

__device__ __forceinline__ int64_t floor_mod(int64_t a, int64_t b)
{
    const int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

__device__ __forceinline__ int cdiv(int a, int b)
{
    const int q = a / b;
    return q + (a % b != 0 && (a < 0) == (b < 0));
}

__device__ __forceinline__ int64_t cdiv(int64_t a, int64_t b)
{
    const int64_t q = a / b;
    return q + (a % b != 0 && (a < 0) == (b < 0));
}

// ---- f32: minima and maxima propagate NaN; the rest approximates within the bounds of the elementwise table ----

__device__ __forceinline__ float max_nan(float a, float b)
{
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

__device__ __forceinline__ float min_nan(float a, float b)
{
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

// Both values are computed; only the result depends on the condition.
template <typename T>
__device__ __forceinline__ T select(bool condition, T a, T b)
{
    return condition ? a : b;
}

__device__ __forceinline__ float reciprocal_approx(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// div.full.f32 spelled out (the divisor is scaled into the range of the reciprocal), so that the part that depends on the divisor
// alone is computed once for all elements of a row.
__device__ __forceinline__ float divide(float a, float b)
{
    const float scale = fabsf(b) > 0x1p126f ? 0x1p-2f : fabsf(b) < 0x1p-126f ? 0x1p24f : 1.0f;
    return a * scale * reciprocal_approx(b * scale);
}

__device__ __forceinline__ float exp2_approx(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ float log2_approx(float x)
{
    float r;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ float exp_approx(float x)
{
    return exp2_approx(x * 1.44269504f);
}

__device__ __forceinline__ float log_approx(float x)
{
    return log2_approx(x) * 0.693147181f;
}

__device__ __forceinline__ float rsqrt_approx(float x)
{
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ float sqrt_approx(float x)
{
    float r;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ float tanh_approx(float x)
{
    float r;
    asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

template <typename T>
__device__ __forceinline__ T shuffle_xor(T x, int lanes)
{
    return __shfl_xor_sync(0xffffffff, x, lanes);
}
