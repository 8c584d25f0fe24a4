// A1: once one warp has waited for its wgmma group, the operands have been read for all four warps.
//
// Warp 4 fills two operand tiles with one value after the other; four warps multiply them; warp 0 gives the tiles back as soon
// as its own wait returns. LATE delays the other warps: 1 between issue and wait, 2 before the issue. A product that is not
// that of the round's value has seen the next round's operands. Tiles of one value make their layout unimportant.

#define STEPS 16
#define TILE (STEPS * 2048)

extern "C" __global__ void __launch_bounds__(160) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const uint32_t base = shared_address(memory), a = base, b = base + TILE, full = base + 2 * TILE, empty = full + 8;
    const uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        barrier_init(full, 1);
        barrier_init(empty, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (warp == 4) {
        if (elect_one()) {
            for (uint32_t r = 0; r < rounds; ++r) {
                if (r && !bounded_wait(empty, (r - 1) & 1, counts))
                    break;
                barrier_arrive_expect(full, 2 * TILE);
                bulk_load(a, out + (r & 1) * TILE / 4, TILE, full);
                bulk_load(b, out + (r & 1) * TILE / 4, TILE, full);
            }
        }
    } else {
        for (uint32_t r = 0; r < rounds; ++r) {
            // they meet once a round, so that none is lapped; the release of the first is early all the same
            if (!all_agree(bounded_wait(full, r & 1, counts)))
                break;
            float d[32];
            UNROLLED for (int i = 0; i < 32; ++i)
                d[i] = 0;
            pin(d);
            if (LATE == 2 && warp)
                jitter(seed, 2 * r, 6000);
            fence_wgmma();
            UNROLLED for (int k = 0; k < STEPS; ++k)
                wgmma_64x64x16(d, a + k * 2048, b + k * 2048);
            wgmma_commit();
            if (LATE == 1 && warp)
                jitter(seed, 2 * r + 1, 6000);
            wgmma_wait<0>();
            if (warp == 0 && elect_one())
                barrier_arrive(empty);
            pin(d);
            const float value = r & 1 ? 2.0f : 1.0f, expected = 16 * STEPS * value * value;
            uint32_t wrong = 0;
            UNROLLED for (int i = 0; i < 32; ++i)
                wrong += d[i] != expected;
            if (wrong)
                count(counts, VIOLATIONS, wrong);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0)
        count(counts, CHECKS, rounds);
}
