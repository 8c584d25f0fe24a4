# Hopper GEMM, C = A times B transposed: warp roles, a TMA ring, wgmma with one group outstanding, persistent tiles.
# The loader is a single thread. Each of two warpgroups computes 64 rows and writes them as four stripes of 64 columns
# through a small ring that the bulk-store engine empties.
kernel gemm(a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N]) for sm_90a:
    const BM = 128
    const BN: {128, 192, 256} = 256
    const BK = 64
    const STAGES: {3, 4, 5, 6} = 4
    const GROUP: {1, 4, 8, 16} = 16
    const CLUSTER: {1, 2} = 1

    where K % 8 == 0, N % 8 == 0                    # rows start on 16 bytes, as TMA wants

    kt = cdiv(K, BK)

    tiles persistent:
        m in cdiv(M, BM) cluster(CLUSTER) grouped(GROUP)
        n in cdiv(N, BN)
        m0 = m * BM
        n0 = n * BN

    role load: warps 4, registers 40
    role math[2]: warps 4, registers 232

    pipeline ab[STAGES] load -> math:
        a: bf16[BM, BK] swizzle(128)
        b: bf16[BN, BK] swizzle(128)

    pipeline cs[2] math -> store:
        c: bf16[64, 64] swizzle(128)

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
                ab.release(keep=1)                  # its multiplication may still be running
            wgmma.wait(acc)
            ab.release()
            r0 = t.m0 + 64 * w
            for i in unroll(BN // 64):
                c0 = t.n0 + 64 * i
                with cs.fill() as o:
                    stmatrix(o.c, bf16(acc[:, 64 * i : 64 * i + 64]))
                tma.store(c[r0 : r0 + 64, c0 : c0 + 64], o.c)
