kernel gemm_small(a: bf16[M, K], b: bf16[N, K], out c: f32[M, N]) for sm_90a:
    where K % 8 == 0, N % 8 == 0

    kt = cdiv(K, 64)

    tiles persistent:
        m in cdiv(M, 64) grouped(4)
        n in cdiv(N, 64)

    role load: warps 1
    role math: warps 4

    pipeline ab[4] load -> math:
        a: bf16[64, 64] swizzle(128)
        b: bf16[64, 64] swizzle(128)

    do load:
        for t in tiles:
            for k in range(kt):
                with ab.fill() as s:
                    tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, k * 64 : k * 64 + 64])
                    tma.load(s.b, b[t.n * 64 : t.n * 64 + 64, k * 64 : k * 64 + 64])

    do math:
        acc: f32[64, 64] frag
        for t in tiles:
            for k in range(kt):
                s = ab.wait()
                wgmma(acc, s.a, s.b.T, use_acc=k > 0)
                wgmma.wait(keep=1)
                ab.release(keep=1)
            wgmma.wait(acc)
            ab.release()
            r = t.m * 64 + rows(acc)
            q = t.n * 64 + cols(acc)
            store(c[r, q], acc, where=r < M and q < N)
