// A7: a warp with work goes on beside warps that spin on the word it will write.

extern "C" __global__ void __launch_bounds__(1024) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    __shared__ volatile uint32_t word;
    if (threadIdx.x == 0)
        word = 0;
    __syncthreads();
    for (uint32_t r = 1; r <= rounds; ++r) {
        if (threadIdx.x / 32 == r % 32) {
            uint32_t x = seed + threadIdx.x;
            for (int i = 0; i < 2000; ++i)
                x = x * 1664525u + 1013904223u;
            if (x != 0 && threadIdx.x % 32 == 0)
                word = r;
        } else {
            const uint64_t start = now_ns();
            while (word < r) {
                if (given_up(counts))
                    break;
                if (now_ns() - start > LIMIT_NS) {
                    count(counts, TIMEOUTS);
                    break;
                }
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        count(counts, CHECKS, rounds);
}
