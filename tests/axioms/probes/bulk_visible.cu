// A2: what a bulk copy has written is seen by ordinary loads right after the wait for its barrier, without a fence.
//
// One thread fills a ring of two slots; seven warps read all of a slot at once after the wait. Before that each warp has read
// the slot's old contents, so that a stale line would show.

#define WORDS 4096

extern "C" __global__ void __launch_bounds__(256) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const uint32_t base = shared_address(memory), full = base + 8 * WORDS, empty = full + 16;
    const uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 7);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    if (warp == 7) {
        if (elect_one()) {
            for (uint32_t r = 0; r < rounds; ++r) {
                const uint32_t s = r & 1;
                if (r >= 2 && !bounded_wait(empty + 8 * s, (r / 2 - 1) & 1, counts))
                    break;
                barrier_arrive_expect(full + 8 * s, 4 * WORDS);
                bulk_load(base + 4 * WORDS * s, in + (r * 7919 + blockIdx.x) % 200 * WORDS, 4 * WORDS, full + 8 * s);
            }
        }
    } else {
        for (uint32_t r = 0; r < rounds; ++r) {
            const uint32_t s = r & 1;
            if (!bounded_wait(full + 8 * s, r / 2 & 1, counts))
                break;
            const uint32_t first = (r * 7919 + blockIdx.x) % 200 * WORDS;
            uint32_t wrong = 0;
            for (uint32_t i = threadIdx.x % 32; i < WORDS; i += 32)
                wrong += shared_word(base + 4 * (WORDS * s + (WORDS - 1 - i))) != first + WORDS - 1 - i;
            if (wrong)
                count(counts, VIOLATIONS, wrong);
            fence_async_shared();
            __syncwarp();
            if (elect_one())
                barrier_arrive(empty + 8 * s);
            jitter(seed, r, 1000);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0)
        count(counts, CHECKS, rounds);
}
