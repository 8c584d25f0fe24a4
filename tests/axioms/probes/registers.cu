// A8: setmaxnreg moves registers within what the launch gave the CTA. The second warpgroup asks for more while the first still
// holds them: it must not go on before the first has given them up, though the SM has free registers.

extern "C" __global__ void __maxnreg__(64) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    __shared__ volatile uint64_t gave[4];
    if (threadIdx.x < 4)
        gave[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x < 128) {
        const uint64_t start = now_ns();
        while (now_ns() - start < 50000 + hashed(seed, blockIdx.x) % 50000) {
        }
        if (threadIdx.x % 32 == 0)
            gave[threadIdx.x / 32] = now_ns();
        __syncwarp();
        setmaxnreg_dec<32>();
    } else {
        setmaxnreg_inc<96>();
        const uint64_t got = now_ns();
        if (threadIdx.x % 32 == 0)
            out[blockIdx.x * 8 + threadIdx.x / 32] = static_cast<uint32_t>(got);
        __threadfence_block();
        if (threadIdx.x % 32 == 0) {
            uint64_t first = ~0ull;
            for (int w = 0; w < 4; ++w)
                first = gave[w] && gave[w] < first ? gave[w] : first;
            if (got < first)
                count(counts, VIOLATIONS);
            else
                atomicMax(counts + OBSERVED, static_cast<uint32_t>(got - first));
        }
    }
    __syncthreads();
    if (threadIdx.x == 0)
        count(counts, CHECKS);
}
