# C = A @ B.T in bf16 with f32 accumulation, for Hopper, by clusters of CTAs that share slabs of B.
#
# The schedule of gemm.cake, with CTAs that are neighbours along M in a cluster: their output tiles lie below one another, so
# they need the same slab of B at the same time. Each loads its share of the slab and sends it to all by TMA multicast,
# which divides the L2 reads of B by CLUSTER. What that takes is derived: a slab is refilled when the math warpgroups of all
# CTAs have given it back, and no CTA leaves before its neighbours. The last cluster may be ragged: what lies past M loads
# zeros and stores nothing. The tiles of a group (GROUP along M) are walked cluster by cluster.
kernel gemm_cluster(a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N]) for sm_90a:
    const MATH: {1, 2, 3} = 2                       # warpgroups, of 64 rows each
    const BM = 64 * MATH
    const BN: {32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256} = 256
    const BK = 64
    const STAGES: {3, 4, 5, 6, 7, 8, 12, 16} = 4
    const GROUP: {1, 4, 8, 16} = 16
    const CLUSTER: {1, 2, 4} = 2
    const CHUNK: {16, 32, 48, 64, 80, 112, 144, 176, 208, 240} = 64                  # columns that leave together
    const OUT: {1, 2, 4} = 2                           # slots of each warpgroup's ring of stores

    where BN % CHUNK == 0
    where K % 8 == 0, N % 8 == 0

    kt = cdiv(K, BK)

    tiles persistent:
        m in cdiv(M, BM) cluster(CLUSTER) grouped(GROUP)
        n in cdiv(N, BN)
        m0 = m * BM
        n0 = n * BN

    role load: warps 4, registers where(MATH == 3, 32, 40)
    role math[MATH]: warps 4, registers where(MATH == 3, 160, 232)

    pipeline ab[STAGES] load -> math:
        a: bf16[BM, BK] swizzle(128)
        b: bf16[BN, BK] swizzle(128)
    pipeline cs[OUT] math -> store:
        c: bf16[64, CHUNK] swizzle(where(64 % CHUNK == 0, 2 * CHUNK, 0))

    do load:
        for t in tiles:
            for k in range(kt):
                k0 = k * BK
                with ab.fill() as s:
                    tma.load(s.a, a[t.m0 : t.m0 + BM, k0 : k0 + BK])
                    tma.load(s.b, b[t.n0 : t.n0 + BN, k0 : k0 + BK], multicast=m)

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
            r0 = t.m0 + 64 * w
            for i in unroll(BN // CHUNK):
                c0 = t.n0 + CHUNK * i
                with cs.fill() as o:
                    stmatrix(o.c, bf16(acc[:, CHUNK * i : CHUNK * i + CHUNK]))
                tma.store(c[r0 : r0 + 64, c0 : c0 + CHUNK], o.c)
