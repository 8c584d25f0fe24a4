// A9 assumes no order of starts, so nothing can contradict it. Observed: CTAs that started before one with a lower number.

extern "C" __global__ void __launch_bounds__(32) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    if (threadIdx.x == 0) {
        const uint32_t ticket = atomicAdd(out, 1);
        if (ticket != blockIdx.x)
            count(counts, OBSERVED);
        count(counts, CHECKS);
        __nanosleep(hashed(seed, blockIdx.x) % 4000);
    }
}
