// A4, writes: 128 threads write a line each, meet at a barrier, and one of them stores the lines by a bulk copy. FENCE: 0 none,
// 1 by each writer before the barrier (what the rules ask for), 2 by the issuer after it. A word that is not the round's in
// global memory was read before it was visible to the async proxy.

#define WORDS 4096

extern "C" __global__ void __launch_bounds__(128) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const uint32_t base = shared_address(memory);
    uint32_t *mine = out + blockIdx.x * WORDS;
    uint32_t wrong = 0;
    for (uint32_t r = 0; r < rounds; ++r) {
        jitter(seed, 2 * r, 500);
        for (uint32_t i = threadIdx.x; i < WORDS; i += 128)
            put_shared_word(base + 4 * i, r * WORDS + i + seed);
        if (FENCE == 1)
            fence_async_shared();
        __syncthreads();
        if (threadIdx.x == r % 128) {
            if (FENCE == 2)
                fence_async_shared();
            bulk_store(mine, base, 4 * WORDS);
            bulk_commit();
            bulk_wait<0>();
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < WORDS; i += 128) {
            uint32_t v;
            asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(mine + (i * 33) % WORDS) : "memory");
            wrong += v != r * WORDS + (i * 33) % WORDS + seed;
        }
        __syncthreads();
    }
    if (wrong)
        count(counts, FENCE == 1 ? VIOLATIONS : OBSERVED, wrong);
    if (threadIdx.x == 0)
        count(counts, CHECKS, rounds);
}
