// A4, reads: seven warps read a slot with ordinary loads and give it back; the next fill is under way at once. FENCE: 1 the
// readers fence before they give it back (what the rules ask for), 0 they do not. A word of a later fill was overwritten
// before its read.

#define WORDS 4096

extern "C" __global__ void __launch_bounds__(256) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const uint32_t base = shared_address(memory), full = base + 4 * WORDS, empty = full + 8;
    const uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        barrier_init(full, 1);
        barrier_init(empty, 7);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (warp == 7) {
        if (elect_one()) {
            for (uint32_t r = 0; r < rounds; ++r) {
                if (r && !bounded_wait(empty, (r - 1) & 1, counts))
                    break;
                barrier_arrive_expect(full, 4 * WORDS);
                bulk_load(base, in + (r + blockIdx.x) % 200 * WORDS, 4 * WORDS, full);
            }
        }
    } else {
        uint32_t wrong = 0;
        for (uint32_t r = 0; r < rounds; ++r) {
            if (!bounded_wait(full, r & 1, counts))
                break;
            const uint32_t first = (r + blockIdx.x) % 200 * WORDS + warp * 512;
            uint32_t held[16];
            UNROLLED for (uint32_t i = 0; i < 16; ++i)
                held[i] = shared_word(base + 4 * (warp * 512 + 32 * i + threadIdx.x % 32));
            if (FENCE == 1)
                fence_async_shared();
            __syncwarp();
            if (elect_one())
                barrier_arrive(empty);
            UNROLLED for (uint32_t i = 0; i < 16; ++i)
                wrong += held[i] != first + 32 * i + threadIdx.x % 32;
            jitter(seed, r, 300);
        }
        if (wrong)
            count(counts, FENCE == 1 ? VIOLATIONS : OBSERVED, wrong);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        count(counts, CHECKS, rounds);
}
