// ---- words of registers as bits ----

__device__ __forceinline__ uint32_t to_bits(float x)
{
    return __float_as_uint(x);
}

__device__ __forceinline__ uint32_t to_bits(int x)
{
    return x;
}

__device__ __forceinline__ uint32_t to_bits(uint32_t x)
{
    return x;
}

__device__ __forceinline__ void set_bits(float &x, uint32_t bits)
{
    x = __uint_as_float(bits);
}

__device__ __forceinline__ void set_bits(int &x, uint32_t bits)
{
    x = bits;
}

__device__ __forceinline__ void set_bits(uint32_t &x, uint32_t bits)
{
    x = bits;
}

// Words from single elements.
__device__ __forceinline__ uint32_t join2_16(uint16_t a, uint16_t b)
{
    return a | static_cast<uint32_t>(b) << 16;
}

__device__ __forceinline__ uint16_t join2_8(uint8_t a, uint8_t b)
{
    return static_cast<uint16_t>(a | b << 8);
}

__device__ __forceinline__ uint32_t join4_8(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
    return a | b << 8 | c << 16 | static_cast<uint32_t>(d) << 24;
}

__device__ __forceinline__ uint8_t join1_8(uint8_t a)
{
    return a;
}

__device__ __forceinline__ uint16_t join1_16(uint16_t a)
{
    return a;
}

template <typename Word>
__device__ __forceinline__ Word load_bits_global(const void *p)
{
    return *static_cast<const Word *>(p);
}

template <typename Word>
__device__ __forceinline__ Word load_bits_global_nc(const void *p)
{
    if constexpr (sizeof(Word) == 1)
        return static_cast<Word>(__ldg(static_cast<const unsigned char *>(p)));
    else
        return __ldg(static_cast<const Word *>(p));
}

// ---- global memory: Count words of registers from one aligned vector ----

template <int Count, typename Word>
__device__ __forceinline__ void load_global(Word *r, const void *p)
{
    if constexpr (sizeof(Word) == 4 && Count == 4) {
        const uint4 v = *static_cast<const uint4 *>(p);
        set_bits(r[0], v.x), set_bits(r[1], v.y), set_bits(r[2], v.z), set_bits(r[3], v.w);
    } else if constexpr (sizeof(Word) == 4 && Count == 2) {
        const uint2 v = *static_cast<const uint2 *>(p);
        set_bits(r[0], v.x), set_bits(r[1], v.y);
    } else if constexpr (sizeof(Word) == 8 && Count == 2) {
        const longlong2 v = *static_cast<const longlong2 *>(p);
        r[0] = v.x, r[1] = v.y;
    } else {
        static_assert(Count == 1, "no such vector");
        r[0] = *static_cast<const Word *>(p);
    }
}

// The same through the read-only path, for tensors that the launch does not write.
template <int Count, typename Word>
__device__ __forceinline__ void load_global_nc(Word *r, const void *p)
{
    if constexpr (sizeof(Word) == 4 && Count == 4) {
        const uint4 v = __ldg(static_cast<const uint4 *>(p));
        set_bits(r[0], v.x), set_bits(r[1], v.y), set_bits(r[2], v.z), set_bits(r[3], v.w);
    } else if constexpr (sizeof(Word) == 4 && Count == 2) {
        const uint2 v = __ldg(static_cast<const uint2 *>(p));
        set_bits(r[0], v.x), set_bits(r[1], v.y);
    } else if constexpr (sizeof(Word) == 8 && Count == 2) {
        const longlong2 v = __ldg(static_cast<const longlong2 *>(p));
        r[0] = v.x, r[1] = v.y;
    } else {
        static_assert(Count == 1, "no such vector");
        r[0] = load_bits_global_nc<Word>(p);
    }
}

// The same with an L2 cache policy.
template <int Count, typename Word>
__device__ __forceinline__ void load_global_hint(Word *r, const void *p, uint64_t policy)
{
    if constexpr (sizeof(Word) == 4 && Count == 4) {
        uint4 v;
        asm volatile("ld.global.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
            : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p), "l"(policy));
        set_bits(r[0], v.x), set_bits(r[1], v.y), set_bits(r[2], v.z), set_bits(r[3], v.w);
    } else if constexpr (sizeof(Word) == 4 && Count == 2) {
        uint2 v;
        asm volatile("ld.global.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;" : "=r"(v.x), "=r"(v.y) : "l"(p), "l"(policy));
        set_bits(r[0], v.x), set_bits(r[1], v.y);
    } else if constexpr (sizeof(Word) == 4 && Count == 1) {
        uint32_t v;
        asm volatile("ld.global.L2::cache_hint.b32 %0, [%1], %2;" : "=r"(v) : "l"(p), "l"(policy));
        set_bits(r[0], v);
    } else {
        load_global<Count>(r, p);
    }
}

template <typename Word>
__device__ __forceinline__ void store_global(void *p, Word a)
{
    *static_cast<Word *>(p) = a;
}

template <typename Word>
__device__ __forceinline__ void store_global(void *p, Word a, Word b)
{
    if constexpr (sizeof(Word) == 8)
        *static_cast<longlong2 *>(p) = make_longlong2(a, b);
    else
        *static_cast<uint2 *>(p) = make_uint2(to_bits(a), to_bits(b));
}

template <typename Word>
__device__ __forceinline__ void store_global(void *p, Word a, Word b, Word c, Word d)
{
    *static_cast<uint4 *>(p) = make_uint4(to_bits(a), to_bits(b), to_bits(c), to_bits(d));
}

// ---- shared memory, by 32-bit address; volatile keeps the order among these and the synchronising instructions ----

template <typename Word>
__device__ __forceinline__ Word load_bits_shared(uint32_t a)
{
    if constexpr (sizeof(Word) == 8) {
        int64_t v;
        asm volatile("ld.shared.b64 %0, [%1];" : "=l"(v) : "r"(a));
        return v;
    } else if constexpr (sizeof(Word) == 4) {
        uint32_t v;
        Word r;
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(a));
        set_bits(r, v);
        return r;
    } else {
        uint16_t v;
        if constexpr (sizeof(Word) == 2)
            asm volatile("ld.shared.b16 %0, [%1];" : "=h"(v) : "r"(a));
        else
            asm volatile("ld.shared.u8 %0, [%1];" : "=h"(v) : "r"(a));
        return static_cast<Word>(v);
    }
}

template <int Count, typename Word>
__device__ __forceinline__ void load_shared(Word *r, uint32_t a)
{
    if constexpr (sizeof(Word) == 4 && Count == 4) {
        uint4 v;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a));
        set_bits(r[0], v.x), set_bits(r[1], v.y), set_bits(r[2], v.z), set_bits(r[3], v.w);
    } else if constexpr (sizeof(Word) == 4 && Count == 2) {
        uint2 v;
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(a));
        set_bits(r[0], v.x), set_bits(r[1], v.y);
    } else if constexpr (sizeof(Word) == 8 && Count == 2) {
        asm volatile("ld.shared.v2.b64 {%0, %1}, [%2];" : "=l"(r[0]), "=l"(r[1]) : "r"(a));
    } else {
        static_assert(Count == 1, "no such vector");
        r[0] = load_bits_shared<Word>(a);
    }
}

template <typename Word>
__device__ __forceinline__ void store_shared(uint32_t address, Word a)
{
    if constexpr (sizeof(Word) == 8)
        asm volatile("st.shared.b64 [%0], %1;" :: "r"(address), "l"(a) : "memory");
    else if constexpr (sizeof(Word) == 4)
        asm volatile("st.shared.b32 [%0], %1;" :: "r"(address), "r"(to_bits(a)) : "memory");
    else if constexpr (sizeof(Word) == 2)
        asm volatile("st.shared.b16 [%0], %1;" :: "r"(address), "h"(static_cast<uint16_t>(a)) : "memory");
    else
        asm volatile("st.shared.u8 [%0], %1;" :: "r"(address), "h"(static_cast<uint16_t>(a)) : "memory");
}

template <typename Word>
__device__ __forceinline__ void store_shared(uint32_t address, Word a, Word b)
{
    if constexpr (sizeof(Word) == 8)
        asm volatile("st.shared.v2.b64 [%0], {%1, %2};" :: "r"(address), "l"(a), "l"(b) : "memory");
    else
        asm volatile("st.shared.v2.b32 [%0], {%1, %2};" :: "r"(address), "r"(to_bits(a)), "r"(to_bits(b)) : "memory");
}

template <typename Word>
__device__ __forceinline__ void store_shared(uint32_t address, Word a, Word b, Word c, Word d)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
        :: "r"(address), "r"(to_bits(a)), "r"(to_bits(b)), "r"(to_bits(c)), "r"(to_bits(d)) : "memory");
}

// The swizzles: 16-byte chunks of a row XOR the row's bits of the pattern.
__device__ __forceinline__ uint32_t swizzle_128(uint32_t offset)
{
    return offset ^ (offset >> 3 & 0x70);
}

__device__ __forceinline__ uint32_t swizzle_64(uint32_t offset)
{
    return offset ^ (offset >> 3 & 0x30);
}

__device__ __forceinline__ uint32_t swizzle_32(uint32_t offset)
{
    return offset ^ (offset >> 3 & 0x10);
}

// ---- shared memory of another CTA of the cluster ----

__device__ __forceinline__ uint32_t peer(uint32_t address, uint32_t rank)
{
    uint32_t r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
    return r;
}

template <typename Word>
__device__ __forceinline__ Word load_bits_peer(uint32_t a)
{
    if constexpr (sizeof(Word) == 4) {
        uint32_t v;
        Word r;
        asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(v) : "r"(a));
        set_bits(r, v);
        return r;
    } else {
        static_assert(sizeof(Word) == 2, "no such access");
        uint16_t v;
        asm volatile("ld.shared::cluster.b16 %0, [%1];" : "=h"(v) : "r"(a));
        return v;
    }
}

template <int Count, typename Word>
__device__ __forceinline__ void load_peer(Word *r, uint32_t a)
{
    if constexpr (sizeof(Word) == 4 && Count == 4) {
        uint4 v;
        asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
            : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a));
        set_bits(r[0], v.x), set_bits(r[1], v.y), set_bits(r[2], v.z), set_bits(r[3], v.w);
    } else if constexpr (sizeof(Word) == 4 && Count == 2) {
        uint2 v;
        asm volatile("ld.shared::cluster.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(a));
        set_bits(r[0], v.x), set_bits(r[1], v.y);
    } else {
        UNROLLED for (int i = 0; i < Count; ++i)
            r[i] = load_bits_peer<Word>(a + i * sizeof(Word));
    }
}

template <typename Word>
__device__ __forceinline__ void store_peer(uint32_t address, Word a)
{
    if constexpr (sizeof(Word) == 4) {
        asm volatile("st.shared::cluster.b32 [%0], %1;" :: "r"(address), "r"(to_bits(a)) : "memory");
    } else {
        static_assert(sizeof(Word) == 2, "no such access");
        asm volatile("st.shared::cluster.b16 [%0], %1;" :: "r"(address), "h"(a) : "memory");
    }
}

template <typename Word>
__device__ __forceinline__ void store_peer(uint32_t address, Word a, Word b)
{
    store_peer(address, a);
    store_peer(address + sizeof(Word), b);
}

template <typename Word>
__device__ __forceinline__ void store_peer(uint32_t address, Word a, Word b, Word c, Word d)
{
    store_peer(address, a, b);
    store_peer(address + 2 * sizeof(Word), c, d);
}

// ---- cp.async (PTX ISA 9.7.9.25.3): the first `bytes` of 16 come from memory, the rest are zeros ----

__device__ __forceinline__ void cp_async_16(uint32_t dst, const void *src, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(dst), "l"(src), "r"(bytes) : "memory");
}

// One arrival of this thread once its copies so far have landed; counted among the expected arrivals.
__device__ __forceinline__ void cp_async_arrive(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(barrier) : "memory");
}
