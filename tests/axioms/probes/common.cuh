// What every probe shares. A probe counts what contradicts its axiom, what it looked at, and waits that took too long; it
// never spins without a limit, and once one wait has timed out all others give up at once.
//
// in: words that hold their own number; out: zeroed words; counts: violations, checks, time-outs, observations (not wrong in
// themselves). `seed` and `rounds` are the launch's.

#define LIMIT_NS 200000000ull

enum Count { VIOLATIONS, CHECKS, TIMEOUTS, OBSERVED };

__device__ __forceinline__ uint64_t now_ns()
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory");
    return t;
}

__device__ __forceinline__ bool given_up(uint32_t *counts)
{
    return *reinterpret_cast<volatile uint32_t *>(counts + TIMEOUTS) != 0;
}

__device__ __forceinline__ void count(uint32_t *counts, Count which, uint32_t by = 1)
{
    atomicAdd(counts + which, by);
}

__device__ __forceinline__ bool phase_done(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    return done != 0;
}

// Wait for a phase with the instruction that kernels wait with: false once time is up.
template <bool Cluster = false>
__device__ __forceinline__ bool bounded_wait(uint32_t barrier, uint32_t parity, uint32_t *counts)
{
    const uint64_t start = now_ns();
    while (true) {
        uint32_t done;
        if constexpr (Cluster)
            asm volatile(
                "{\n.reg .pred p;\n"
                "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                "selp.u32 %0, 1, 0, p;\n}\n"
                : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
        else
            asm volatile(
                "{\n.reg .pred p;\n"
                "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                "selp.u32 %0, 1, 0, p;\n}\n"
                : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
        if (done)
            return true;
        if (given_up(counts))
            return false;
        if (now_ns() - start > LIMIT_NS) {
            count(counts, TIMEOUTS);
            return false;
        }
    }
}

// Whether all of 128 threads say so; they meet at a barrier for it, and go on or leave together.
__device__ __forceinline__ bool all_agree(bool mine)
{
    uint32_t agreed;
    __syncwarp();
    asm volatile(
        "{\n.reg .pred p, q;\n"
        "setp.ne.u32 q, %1, 0;\n"
        "barrier.cta.red.and.aligned.pred p, 1, 128, q;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(agreed) : "r"(static_cast<uint32_t>(mine)) : "memory");
    return agreed != 0;
}

__device__ __forceinline__ uint32_t hashed(uint32_t seed, uint32_t place)
{
    uint32_t h = (seed * 0x9e3779b1u) ^ (place * 0x85ebca6bu) ^ (threadIdx.x / 32 * 0xc2b2ae35u);
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    h ^= h >> 12;
    return h;
}

// Up to `most` nanoseconds, in half of the places none.
__device__ __forceinline__ void jitter(uint32_t seed, uint32_t place, uint32_t most)
{
    const uint32_t h = hashed(seed, place);
    if (h & 1)
        __nanosleep((h >> 8) % most);
}

// A copy of contiguous bytes without a tensor map (PTX ISA 9.7.9.27.4.1).
__device__ __forceinline__ void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        :: "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

__device__ __forceinline__ void bulk_load_multicast(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier, uint16_t mask)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
        :: "r"(to), "l"(from), "r"(bytes), "r"(barrier), "h"(mask) : "memory");
}

__device__ __forceinline__ void bulk_store(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(to), "r"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ uint32_t peer_address(uint32_t address, uint32_t rank)
{
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

__device__ __forceinline__ uint32_t shared_word(uint32_t address)
{
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ void put_shared_word(uint32_t address, uint32_t v)
{
    asm volatile("st.shared.b32 [%0], %1;" :: "r"(address), "r"(v) : "memory");
}

// d += a b for 64 x 64 x 16 of bf16, no swizzle: core matrices of 128 bytes, one after the other (9.7.15.5.1).
__device__ __forceinline__ uint64_t plain_descriptor(uint32_t address)
{
    return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(128 >> 4) << 16 | static_cast<uint64_t>(256 >> 4) << 32;
}

__device__ __forceinline__ void wgmma_64x64x16(float *d, uint32_t a, uint32_t b)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(plain_descriptor(a)), "l"(plain_descriptor(b)));
}
