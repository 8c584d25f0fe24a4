# C = A @ B.T in bf16 with f32 accumulation, for Hopper, for products with few tiles: K is divided within clusters of CTAs.
#
# The SPLIT CTAs of a cluster multiply one tile, each its part of K, by the main loop of gemm.cake. Their sums, in f32, go to a
# stage that the cluster fills together; when it is full in all of them, each CTA adds up its share of the rows through
# distributed shared memory and stores it. So nothing passes through global memory, no CTA waits for one that may not have
# started, and all take part in the end. A role of its own does that: in a CTA with several tiles the next one is multiplied
# meanwhile. The order of the additions is fixed. Each CTA begins with its own part, so that not all read the same one at once.
kernel gemm_split(a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N]) for sm_90a:
    const MATH: {1, 2} = 2                          # warpgroups, of 64 rows each
    const BM = 64 * MATH
    const BN: {32, 64, 96, 128, 160, 192} = 128
    const BK = 64
    const STAGES: {3, 4, 5, 6, 8, 12} = 4
    const GROUP: {1, 4, 8} = 4
    const SPLIT: {1, 2, 4, 8} = 4
    const ROWS = BM // SPLIT                        # of each CTA's share of the sums

    where K % 8 == 0, N % 8 == 0

    kt = cdiv(cdiv(K, BK), SPLIT)                   # all parts are of one length; past K there are zeros

    tiles persistent:
        m in cdiv(M, BM) grouped(GROUP)
        n in cdiv(N, BN)
        z in SPLIT cluster(SPLIT)
        m0 = m * BM
        n0 = n * BN

    role load: warps 4, registers 40
    role math[MATH]: warps 4, registers where(MATH == 2, 184, 232)
    role add: warps 4, registers 104

    pipeline ab[STAGES] load -> math:
        a: bf16[BM, BK] swizzle(128)
        b: bf16[BN, BK] swizzle(128)
    pipeline sums[1] math -> add across(z):
        x: f32[BM, BN] pad(8)

    do load:
        for t in tiles:
            for k in range(kt):
                k0 = (t.z * kt + k) * BK
                with ab.fill() as s:
                    tma.load(s.a, a[t.m0 : t.m0 + BM, k0 : k0 + BK])
                    tma.load(s.b, b[t.n0 : t.n0 + BN, k0 : k0 + BK])

    do math as w:
        acc: f32[64, BN] frag
        for t in tiles:
            for k in range(kt):
                s = ab.wait()
                wgmma(acc, s.a[64 * w : 64 * w + 64], s.b.T, use_acc=k > 0)
                wgmma.wait(keep=1)
                ab.release(keep=1)                  # the slab just issued is still being read
            wgmma.wait(acc)
            ab.release()
            with sums.fill() as o:
                store(o.x[64 * w : 64 * w + 64, :], acc)

    do add:
        v: f32[ROWS, BN] spread(4)
        for t in tiles:
            r = t.z * ROWS + rows(v)
            s = sums.wait()
            v = load(s.x[r, cols(v)])
            for i in range(SPLIT - 1):
                p = (t.z + i + 1) % SPLIT
                v = v + load(s.x.of(p)[r, cols(v)])
            store(c[t.m0 + r, t.n0 + cols(v)], bf16(v), where=t.m0 + r < M and t.n0 + cols(v) < N)
            sums.release()
