# C = A @ B.T in bf16 with f32 accumulation, for Hopper: two warpgroups cooperate on every output tile.
#
# The tile is 128 x BN. One thread keeps a ring of slabs full; each warpgroup multiplies its 64 rows of A with the whole slab
# of B, so that B is read from shared memory twice and from global memory once. Nothing stays in flight from one slab to the
# next: a warpgroup waits for its product, then gives the slab back, and what hides the latency of the loads is the depth of
# the ring. A slab is free again when all eight math warps have released it. Each CTA computes one tile, and the accumulators
# go from registers to memory by ordinary stores, masked where the matrix ends, so that C needs no alignment beyond pairs.
kernel gemm_cooperative(a: bf16[M, K], b: bf16[N, K], out c: f32[M, N]) for sm_90a:
    const BN: {64, 128} = 128
    const STAGES: {2, 3, 4} = 3

    where K % 8 == 0, N % 2 == 0

    kt = cdiv(K, 64)

    tiles once:
        m in cdiv(M, 128)
        n in cdiv(N, BN)

    role load: warps 1
    role math[2]: warps 4

    pipeline ab[STAGES] load -> math:
        a: bf16[128, 64] swizzle(128)
        b: bf16[BN, 64] swizzle(128)

    do load:
        for t in tiles:
            for k in range(kt):
                with ab.fill() as s:
                    tma.load(s.a, a[t.m * 128 : t.m * 128 + 128, k * 64 : k * 64 + 64])
                    tma.load(s.b, b[t.n * BN : t.n * BN + BN, k * 64 : k * 64 + 64])

    do math as w:
        acc: f32[64, BN] frag
        for t in tiles:
            for k in range(kt):
                s = ab.wait()
                wgmma(acc, s.a[64 * w : 64 * w + 64], s.b.T, use_acc=k > 0)
                wgmma.wait(acc)
                ab.release()
            row = t.m * 128 + 64 * w + rows(acc)
            col = t.n * BN + cols(acc)
            store(c[row, col], acc, where=row < M and col < N)
