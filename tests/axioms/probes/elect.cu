// A6: elect.sync picks the same lane each time, also after the lanes have diverged and met again.

extern "C" __global__ void __launch_bounds__(128) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t first = 32, wrong = 0;
    for (uint32_t r = 0; r < rounds; ++r) {
        if (hashed(seed, r * 32 + lane) & 1)
            __nanosleep(20);
        __syncwarp();
        const uint32_t chosen = __ballot_sync(0xffffffff, elect_one());
        const uint32_t leader = __ffs(chosen) - 1;
        wrong += __popc(chosen) != 1;
        if (first == 32)
            first = leader;
        wrong += leader != first;
    }
    if (lane == 0) {
        if (wrong)
            count(counts, VIOLATIONS, wrong);
        count(counts, CHECKS, rounds);
        atomicMax(counts + OBSERVED, first);
    }
}
