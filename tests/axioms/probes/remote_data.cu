// A5, data: rank 0 writes words of rank 1's shared memory and arrives at its barrier; rank 1 waits and reads. SCOPE 1: cluster
// scope on both sides, as F304 asks for (a fence, and an arrival that it makes a release); 0: CTA scope, under which a stale
// word would be no surprise; 2: cluster scope without the fence, likewise.

#define WORDS 1024

__device__ __forceinline__ void arrive(uint32_t barrier, uint32_t rank)
{
    if (SCOPE == 1)
        fence_cluster();
    if (SCOPE)
        barrier_arrive_peer_relaxed_cluster(barrier, rank, 1);
    else
        barrier_arrive_peer(barrier, rank, 1);
}

extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(128) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const uint32_t base = shared_address(memory), full = base + 4 * WORDS, empty = full + 8;
    const uint32_t warp = threadIdx.x / 32, rank = cluster_rank();
    if (threadIdx.x == 0) {
        barrier_init(full, 4);
        barrier_init(empty, 4);
        fence_mbarrier_init();
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    uint32_t wrong = 0;
    for (uint32_t r = 0; r < rounds; ++r) {
        if (rank == 0) {
            if (r && !bounded_wait<(SCOPE > 0)>(empty, (r - 1) & 1, counts))
                break;
            jitter(seed, r, 500);
            for (uint32_t i = threadIdx.x; i < WORDS; i += 128)
                asm volatile("st.shared::cluster.b32 [%0], %1;" :: "r"(peer_address(base + 4 * i, 1)), "r"(r * WORDS + i) : "memory");
            __syncwarp();
            if (elect_one()) {
                arrive(full, 1);
            }
        } else {
            if (!bounded_wait<(SCOPE > 0)>(full, r & 1, counts))
                break;
            for (uint32_t i = threadIdx.x; i < WORDS; i += 128) {
                const uint32_t at = (i + 64 * r) % WORDS;
                wrong += shared_word(base + 4 * at) != r * WORDS + at;
            }
            __syncwarp();
            if (elect_one()) {
                arrive(empty, 0);
            }
        }
    }
    if (wrong)
        count(counts, SCOPE == 1 ? VIOLATIONS : OBSERVED, wrong);
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    if (threadIdx.x == 0)
        count(counts, CHECKS, rounds);
}
