# Ampere GEMM with a self-filled cp.async ring; 2 x 4 warps, each on a 64 x 32 part through ldmatrix and mma.
kernel gemm_sm80(a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N]) for sm_80, sm_86, sm_89:
    const BM = 128
    const BN = 128
    const BK = 32
    const STAGES: {3, 4, 5} = 4

    where K % 8 == 0, N % 8 == 0

    kt = cdiv(K, BK)

    tiles once:
        m in cdiv(M, BM) grouped(8)
        n in cdiv(N, BN)
        m0 = m * BM
        n0 = n * BN

    role math[8]: warps 1

    pipeline ab[STAGES] math -> math:
        a: bf16[BM, BK] swizzle(64)
        b: bf16[BN, BK] swizzle(64)

    do math as w:
        wm = w % 2
        wn = w // 2
        acc: f32[64, 32] frag
        for t in tiles:
            acc = 0.0
            for k in range(1 - STAGES, kt) split(0):
                if k >= 0:
                    s = ab.wait()                   # what I copied is here
                    sync(math)                      # what all copied is here, and the slot refilled next is free
                f = k + STAGES - 1
                with ab.fill(when=f < kt) as n:
                    r = 16 * w
                    cp_async(n.a[r : r + 16], a[t.m0 + r : t.m0 + r + 16, f * BK : f * BK + BK])
                    cp_async(n.b[r : r + 16], b[t.n0 + r : t.n0 + r + 16, f * BK : f * BK + BK])
                if k >= 0:
                    for i in unroll(BK // 16):
                        x = s.a[64 * wm : 64 * wm + 64, 16 * i : 16 * i + 16]
                        z = s.b[32 * wn : 32 * wn + 32, 16 * i : 16 * i + 16]
                        mma(acc, x, z.T)
                    ab.release()
            row = t.m0 + 64 * wm + rows(acc)
            col = t.n0 + 32 * wn + cols(acc)
            store(c[row, col], bf16(acc), where=row < M and col < N)
