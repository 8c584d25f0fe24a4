# Y = gelu(X @ W.T + b) in bf16 with f32 inside, for Hopper: a linear layer with its activation in the epilogue.
# gelu is the exact one, x / 2 * (1 + erf(x / sqrt(2))) (torch's default), not the tanh form.
#
# The main loop of gemm.cake. Each output tile also takes its slice of the bias: one more TMA load, through a ring of its
# own, so that it has arrived long before the last product. The epilogue works on 64 columns at a time, so that only those
# are live beside the accumulators: bias as one value a column, activation, bf16, a slot of the store ring.
kernel gemm_bias_gelu(x: bf16[M, K], w: bf16[N, K], bias: f32[N], out y: bf16[M, N]) for sm_90a:
    const BM = 128
    const BN: {128, 192, 256} = 256
    const BK = 64
    const STAGES: {3, 4, 5} = 4
    const GROUP: {4, 8, 16} = 16

    where K % 8 == 0, N % 8 == 0

    kt = cdiv(K, BK)

    tiles persistent:
        m in cdiv(M, BM) grouped(GROUP)
        n in cdiv(N, BN)
        m0 = m * BM
        n0 = n * BN

    role load: warps 4, registers 40
    role math[2]: warps 4, registers 232

    pipeline ab[STAGES] load -> math:
        a: bf16[BM, BK] swizzle(128)
        b: bf16[BN, BK] swizzle(128)
    pipeline biases[2] load -> math:
        b: f32[BN]
    pipeline ys[2] math -> store:
        y: bf16[64, 64] swizzle(128)

    do load:
        for t in tiles:
            with biases.fill() as s:
                tma.load(s.b, bias[t.n0 : t.n0 + BN])
            for k in range(kt):
                k0 = k * BK
                with ab.fill() as s:
                    tma.load(s.a, x[t.m0 : t.m0 + BM, k0 : k0 + BK])
                    tma.load(s.b, w[t.n0 : t.n0 + BN, k0 : k0 + BK])

    do math as g:
        acc: f32[64, BN] frag
        z: f32[64, 64] frag
        for t in tiles:
            for k in range(kt):
                s = ab.wait()
                wgmma(acc, s.a[64 * g : 64 * g + 64], s.b.T, use_acc=k > 0)
                wgmma.wait(keep=1)
                ab.release(keep=1)                  # the slab just issued is still being read
            wgmma.wait(acc)
            ab.release()
            r0 = t.m0 + 64 * g
            v = biases.wait()
            for i in unroll(BN // 64):
                c0 = t.n0 + 64 * i
                z = acc[:, 64 * i : 64 * i + 64] + load(v.b[64 * i + cols(z)])
                z = 0.5 * z * (1.0 + erf(z * 0.7071067811865476))
                with ys.fill() as o:
                    stmatrix(o.y, bf16(z))
                tma.store(y[r0 : r0 + 64, c0 : c0 + 64], o.y)
            biases.release()
