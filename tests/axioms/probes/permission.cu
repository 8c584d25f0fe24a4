// A5, permission: rank 1 multiplies operands that rank 0 has copied into it, and gives them back by an arrival of CTA scope at
// rank 0's barrier; rank 0 copies the next ones at once. A product that is not that of the round's value has seen the next
// round's operands.

#define STEPS 16
#define TILE (STEPS * 2048)

extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(128) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const uint32_t base = shared_address(memory), a = base, b = base + TILE, full = base + 2 * TILE, empty = full + 8;
    const uint32_t warp = threadIdx.x / 32, rank = cluster_rank();
    if (threadIdx.x == 0) {
        barrier_init(full, 1);
        barrier_init(empty, 4);
        fence_mbarrier_init();
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    if (rank == 0 && warp == 0 && elect_one()) {
        for (uint32_t r = 0; r < rounds; ++r) {
            if (r && !bounded_wait(empty, (r - 1) & 1, counts))
                break;
            const uint32_t *from = out + (r & 1) * TILE / 4;
            bulk_load(peer_address(a, 1), from, TILE, peer_address(full, 1));
            bulk_load(peer_address(b, 1), from, TILE, peer_address(full, 1));
        }
    }
    if (rank == 1) {
        if (threadIdx.x == 0)
            barrier_arrive_expect(full, 2 * TILE);
        for (uint32_t r = 0; r < rounds; ++r) {
            if (!all_agree(bounded_wait(full, r & 1, counts)))
                break;
            if (threadIdx.x == 0 && r + 1 < rounds)
                barrier_arrive_expect(full, 2 * TILE);
            float d[32];
            UNROLLED for (int i = 0; i < 32; ++i)
                d[i] = 0;
            pin(d);
            fence_wgmma();
            UNROLLED for (int k = 0; k < STEPS; ++k)
                wgmma_64x64x16(d, a + k * 2048, b + k * 2048);
            wgmma_commit();
            wgmma_wait<0>();
            jitter(seed, r, 3000);
            __syncwarp();
            if (elect_one())
                barrier_arrive_peer(empty, 0, 1);
            pin(d);
            const float value = r & 1 ? 2.0f : 1.0f, expected = 16 * STEPS * value * value;
            uint32_t wrong = 0;
            UNROLLED for (int i = 0; i < 32; ++i)
                wrong += d[i] != expected;
            if (wrong)
                count(counts, VIOLATIONS, wrong);
        }
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    if (threadIdx.x == 0)
        count(counts, CHECKS, rounds);
}
