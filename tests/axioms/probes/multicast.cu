// A3: the bytes that a multicast copy writes into a CTA, and its completion there, are for a waiter of that CTA what a copy of
// its own would be: the default scope is enough. Clusters of four; rank 0 copies to all.

#define WORDS 2048

extern "C" __global__ void __cluster_dims__(4) __launch_bounds__(160) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const uint32_t base = shared_address(memory), full = base + 8 * WORDS, empty = full + 16;
    const uint32_t warp = threadIdx.x / 32, rank = cluster_rank();
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 16);
        }
        fence_mbarrier_init();
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    const uint32_t cluster = blockIdx.x / 4;
    if (warp == 4) {
        if (elect_one()) {
            for (uint32_t r = 0; r < rounds; ++r) {
                const uint32_t s = r & 1;
                if (r >= 2 && !bounded_wait(empty + 8 * s, (r / 2 - 1) & 1, counts))
                    break;
                barrier_arrive_expect(full + 8 * s, 4 * WORDS);
                if (rank == 0)
                    bulk_load_multicast(base + 4 * WORDS * s, in + (r * 7919 + cluster) % 400 * WORDS, 4 * WORDS, full + 8 * s, 15);
            }
        }
    } else {
        for (uint32_t r = 0; r < rounds; ++r) {
            const uint32_t s = r & 1;
            if (!bounded_wait(full + 8 * s, r / 2 & 1, counts))
                break;
            const uint32_t first = (r * 7919 + cluster) % 400 * WORDS;
            uint32_t wrong = 0;
            for (uint32_t i = threadIdx.x % 32; i < WORDS; i += 32)
                wrong += shared_word(base + 4 * (WORDS * s + (WORDS - 1 - i))) != first + WORDS - 1 - i;
            if (wrong)
                count(counts, VIOLATIONS, wrong);
            fence_async_shared();
            __syncwarp();
            // all four CTAs' slots are free before any is filled again: each warp tells every rank
            if (elect_one())
                for (uint32_t peer = 0; peer < 4; ++peer)
                    barrier_arrive_peer(empty + 8 * s, peer, 1);
            jitter(seed, r, 2000);
        }
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    if (threadIdx.x == 0)
        count(counts, CHECKS, rounds);
}
