# C[z] = A[z] @ B[z].T for each z of a batch, in bf16 with f32 accumulation, for Hopper.
#
# The schedule of gemm.cake with one axis more: tensors have three axes, boxes keep two of them, and tensor maps of three
# axes clip and fill zeros at the edges of each matrix, so that no tile reaches into the next one. The batch is the slowest
# axis, so that one matrix at a time passes through L2; tiles are smaller than gemm.cake's by default, since the matrices of
# a batch often are. M may be anything; rows start on 16 bytes, hence K % 8 and N % 8.
kernel batched_gemm(a: bf16[Z, M, K], b: bf16[Z, N, K], out c: bf16[Z, M, N]) for sm_90a:
    const BM = 128
    const BN: {64, 128, 256} = 128
    const BK = 64
    const STAGES: {3, 4, 5, 6} = 6
    const GROUP: {1, 4, 8} = 8

    where K % 8 == 0, N % 8 == 0

    kt = cdiv(K, BK)

    tiles persistent:
        z in Z
        m in cdiv(M, BM) grouped(GROUP)
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
                    tma.load(s.a, a[t.z, t.m0 : t.m0 + BM, k0 : k0 + BK])
                    tma.load(s.b, b[t.z, t.n0 : t.n0 + BN, k0 : k0 + BK])

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
            for i in unroll(BN // 64):
                c0 = t.n0 + 64 * i
                with cs.fill() as o:
                    stmatrix(o.c, bf16(acc[:, 64 * i : 64 * i + 64]))
                tma.store(c[t.z, r0 : r0 + 64, c0 : c0 + 64], o.c)
