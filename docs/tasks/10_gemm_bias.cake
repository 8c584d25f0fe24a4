kernel gemm_bias(a: bf16[M, K], b: bf16[N, K], bias: f32[N], out c: bf16[M, N]) for sm_90a:
    where K % 8 == 0, N % 8 == 0

    kt = cdiv(K, 64)

    tiles persistent:
        m in cdiv(M, 128)
        n in cdiv(N, 128)

    role load: warps 4, registers 40
    role math[2]: warps 4, registers 232

    pipeline ab[4] load -> math:
        a: bf16[128, 64] swizzle(128)
        b: bf16[128, 64] swizzle(128)

    pipeline bs[2] load -> math:
        v: f32[128]

    pipeline cs[2] math -> store:
        c: bf16[64, 64] swizzle(128)

    do load:
        for t in tiles:
            with bs.fill() as s:
                tma.load(s.v, bias[t.n * 128 : t.n * 128 + 128])
            for k in range(kt):
                with ab.fill() as s:
                    tma.load(s.a, a[t.m * 128 : t.m * 128 + 128, k * 64 : k * 64 + 64])
                    tma.load(s.b, b[t.n * 128 : t.n * 128 + 128, k * 64 : k * 64 + 64])

    do math as w:
        acc: f32[64, 128] frag
        for t in tiles:
            for k in range(kt):
                s = ab.wait()
                wgmma(acc, s.a[64 * w : 64 * w + 64], s.b.T, use_acc=k > 0)
                wgmma.wait(keep=1)
                ab.release(keep=1)
            wgmma.wait(acc)
            ab.release()
            add = bs.wait()
            acc = max(acc + load(add.v[cols(acc)]), 0.0)
            bs.release()
            r = t.m * 128 + 64 * w
            for i in unroll(2):
                with cs.fill() as o:
                    stmatrix(o.c, bf16(acc[:, 64 * i : 64 * i + 64]))
                tma.store(c[r : r + 64, t.n * 128 + 64 * i : t.n * 128 + 64 * i + 64], o.c)
