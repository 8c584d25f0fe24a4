# Blackwell GEMM: TMA feeds tcgen05, two accumulators alternate in tensor memory, tiles come from launch control.
kernel gemm_sm100(a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N]) for sm_100a:
    const BM = 128
    const BN: {128, 256} = 256
    const BK = 64
    const STAGES: {3, 4} = 4

    where K % 8 == 0, N % 8 == 0

    kt = cdiv(K, BK)

    tiles clc(sched):
        m in cdiv(M, BM) grouped(8)
        n in cdiv(N, BN)
        m0 = m * BM
        n0 = n * BN

    role sched: warps 1
    role load: warps 1
    role mul: warps 1
    role epi: warps 4

    pipeline ab[STAGES] load -> mul:
        a: bf16[BM, BK] swizzle(128)
        b: bf16[BN, BK] swizzle(128)
    pipeline accs[2] mul -> epi:
        d: f32[BM, BN] tmem
    pipeline cs[2] epi -> store:
        c: bf16[BM, 64] swizzle(128)

    do load:
        for t in tiles:
            for k in range(kt):
                with ab.fill() as s:
                    tma.load(s.a, a[t.m0 : t.m0 + BM, k * BK : k * BK + BK])
                    tma.load(s.b, b[t.n0 : t.n0 + BN, k * BK : k * BK + BK])

    do mul:
        for t in tiles:
            with accs.fill() as acc:                # completed by the commit after these MMAs
                for k in range(kt):
                    s = ab.wait()
                    tcgen05.mma(acc.d, s.a, s.b.T, use_acc=k > 0)
                    ab.release()                    # likewise given back by a commit

    do epi:
        for t in tiles:
            acc = accs.wait()
            for i in unroll(BN // 64):
                x = tcgen05.load(acc.d[:, 64 * i : 64 * i + 64])
                tcgen05.wait(x)
                if i == BN // 64 - 1:
                    accs.release()
                with cs.fill() as o:
                    store(o.c, bf16(x))
                tma.store(c[t.m0 : t.m0 + BM, t.n0 + 64 * i : t.n0 + 64 * i + 64], o.c)
