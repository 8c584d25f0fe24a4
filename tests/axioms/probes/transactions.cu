// D2 and D3: a phase completes when the arrivals and the announced bytes are all there, and not before; bytes may land before
// they are announced while an arrival is pending.

extern "C" __global__ void __launch_bounds__(32) probe(const uint32_t *in, uint32_t *out, uint32_t *counts, uint32_t seed, uint32_t rounds)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const uint32_t base = shared_address(memory), full = base + 4096;
    if (threadIdx.x)
        return;
    barrier_init(full, 2);
    fence_mbarrier_init();
    uint32_t wrong = 0;
    for (uint32_t r = 0; r < rounds; ++r) {
        const uint32_t parity = r & 1;
        bulk_load(base, in + r % 1000 * 256, 1024, full);           // lands before anybody has announced it
        jitter(seed, 4 * r, 3000);
        wrong += phase_done(full, parity);
        barrier_expect(full, 1024);
        jitter(seed, 4 * r + 1, 3000);
        wrong += phase_done(full, parity);                          // the bytes balance, two arrivals are missing
        barrier_arrive(full);
        jitter(seed, 4 * r + 2, 1000);
        wrong += phase_done(full, parity);
        barrier_arrive_expect(full, 2048);                          // all arrivals, and 2048 bytes to come
        wrong += phase_done(full, parity);
        jitter(seed, 4 * r + 3, 1000);
        wrong += phase_done(full, parity);
        bulk_load(base + 1024, in + r % 1000 * 256, 1024, full);
        bulk_load(base + 2048, in + r % 1000 * 256 + 256, 1024, full);
        if (!bounded_wait(full, parity, counts))
            break;
        wrong += phase_done(full, parity ^ 1);                      // the next phase has not completed
        for (uint32_t i = 0; i < 256; i += 37)
            wrong += shared_word(base + 2048 + 4 * i) != r % 1000 * 256 + 256 + i;
        fence_async_shared();
    }
    if (wrong)
        count(counts, VIOLATIONS, wrong);
    count(counts, CHECKS, rounds);
}
