# C = A @ B.T in bf16 with f32 accumulation, for Hopper, with the slabs of all tiles divided evenly among U units.
#
# Tiles that do not fill whole waves leave SMs idle; here every unit (one a CTA, if U is the number of SMs) multiplies the same
# number of slabs, wherever tiles begin and end. A unit walks its slabs in order. It may begin inside a tile: that part it
# leaves in `part`, early. And it may end inside a tile: that tile it finishes, last of all, with what the following units
# left. So nobody waits long. Units are numbered backwards, so that each waits only for some before it in the list, which
# some CTA has taken already; `flags` ends at zero as it began. The sums are added in a fixed order.
kernel gemm_streamk(a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N],
                    inout part: f32[U, 2, 64 * BN], inout flags: i32[U, 2]) for sm_90a:
    const BM = 128
    const BN: {64, 128, 192, 256} = 256
    const BK = 64
    const STAGES: {4, 5, 6, 8} = 4

    where K % 8 == 0, N % 8 == 0
    where U <= cdiv(M, BM) * cdiv(N, BN) * cdiv(K, BK)  # a slab for everyone

    assume zero(flags)

    kt = cdiv(K, BK)
    nt = cdiv(N, BN)
    total = cdiv(M, BM) * nt * kt

    tiles persistent:
        v in U
        u = U - 1 - v
        first = total * u // U
        last = total * (u + 1) // U
        tile = max(0, first // kt)                  # where it begins
        count = cdiv(last, kt) - tile               # tiles that it has a part of
        cut = first % kt > 0

    role load: warps 4, registers 40
    role math[2]: warps 4, registers 232

    pipeline ab[STAGES] load -> math:
        a: bf16[BM, BK] swizzle(128)
        b: bf16[BN, BK] swizzle(128)
    pipeline cs[2] math -> store:
        c: bf16[64, 64] swizzle(128)

    do load:
        for t in tiles:
            for q in range(t.count):
                j = t.tile + q
                begin = max(t.first, j * kt)
                m0 = max(0, j // nt) * BM
                n0 = j % nt * BN
                for i in range(max(1, min(t.last, j * kt + kt) - begin)):
                    k0 = (begin - j * kt + i) * BK
                    with ab.fill() as s:
                        tma.load(s.a, a[m0 : m0 + BM, k0 : k0 + BK])
                        tma.load(s.b, b[n0 : n0 + BN, k0 : k0 + BK])

    do math as w:
        acc: f32[64, BN] frag
        for t in tiles:
            for q in range(t.count):
                j = t.tile + q
                begin = max(t.first, j * kt)
                for i in range(max(1, min(t.last, j * kt + kt) - begin)):
                    s = ab.wait()
                    wgmma(acc, s.a[64 * w : 64 * w + 64], s.b.T, use_acc=i > 0)
                    wgmma.wait(keep=1)
                    ab.release(keep=1)
                wgmma.wait(acc)
                ab.release()
                if q == 0 and t.cut:                # the end of a tile that the unit before began
                    store(part[t.u, w, lin(acc)], acc)
                    sync()
                    signal(flags[t.u, w], 1)
                else:
                    for p in range(t.u + 1, min(U, cdiv((j * kt + kt) * U, total))):
                        wait_until(flags[p, w], 1)
                        sync()
                        acc = acc + load(part[p, w, lin(acc)])
                        sync()
                        signal(flags[p, w], 0)
                    r0 = max(0, j // nt) * BM + 64 * w
                    n0 = j % nt * BN
                    for i in unroll(BN // 64):
                        c0 = n0 + 64 * i
                        with cs.fill() as o:
                            stmatrix(o.c, bf16(acc[:, 64 * i : 64 * i + 64]))
                        tma.store(c[r0 : r0 + 64, c0 : c0 + 64], o.c)
