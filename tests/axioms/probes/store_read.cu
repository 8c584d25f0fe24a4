// D207's ground: once a bulk store's source has been read (`wait_group.read`), the buffer may be rewritten. 128 threads
// rewrite it at once; what arrives in global memory must be what stood there at the store.

#define WORDS 8192

extern "C" __global__ void __launch_bounds__(128) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const uint32_t base = shared_address(memory);
    uint32_t *mine = out + blockIdx.x * WORDS;
    uint32_t wrong = 0;
    for (uint32_t r = 0; r < rounds; ++r) {
        for (uint32_t i = threadIdx.x; i < WORDS; i += 128)
            put_shared_word(base + 4 * i, r * WORDS + i);
        fence_async_shared();
        __syncthreads();
        if (threadIdx.x == 0) {
            bulk_store(mine, base, 4 * WORDS);
            bulk_commit();
            bulk_wait_read<0>();
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < WORDS; i += 128)
            put_shared_word(base + 4 * i, 0xdeadbeef);
        if (threadIdx.x == 0)
            bulk_wait<0>();
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < WORDS; i += 128) {
            uint32_t v;
            asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(mine + i) : "memory");
            wrong += v != r * WORDS + i;
        }
        __syncthreads();
    }
    if (wrong)
        count(counts, VIOLATIONS, wrong);
    if (threadIdx.x == 0)
        count(counts, CHECKS, rounds);
}
