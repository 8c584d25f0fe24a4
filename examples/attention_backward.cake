# Gradients of attention over packed sequences, causal or not, with grouped heads: dQ, dK and dV from dO, the output O and the log2
# of the row sums that attention.cake stores with LSE. bf16 in and out; sums in f32.
#
#     P = exp2(scale_log2 Q K.T - LSE)    dV = P.T dO    dP = dO V.T    dS = P (dP - delta)    dK = scale dS.T Q    dQ = scale dS K
#
# with delta = rowsum(dO O). Three launches: `prepare` computes delta and zeros the sum of dQ, `backward` does the five products,
# `finish` rounds dQ. Workspace is in blocks of BM queries: sequence b owns those from cu_q[b] // BM + b on.
const D: {64, 128} = 128
const BM: {64, 128} = where(D == 128, 64, 128)      # queries of a block
const BN = 128                                      # keys of a tile
const QW = BM * D // 128                            # queries of the part of dQ that a warpgroup computes, for 64 columns
const CAUSAL: {False, True} = True

# delta and the log sums, block by block, so that one copy brings both. Rows past a sequence's end, and rows that see no key, get a
# log sum that makes their weights zero.
kernel prepare(o: bf16[TQ, H, D], do: bf16[TQ, H, D], lse: f32[H, TQ], cu_q: i32[B + 1], max_q: i32,
               out stats: f32[H, TQ // BM + B, 2, BM], out dq_sum: f32[H, TQ // BM + B, 2, QW // 4, 256]) for sm_90a:
    assume increasing(cu_q), cu_q[0] == 0, cu_q[B] == TQ

    tiles once:
        b in B
        m in cdiv(max_q, BM) + 1
        h in H
        q0 = load(cu_q[b])
        q1 = load(cu_q[b + 1])
        nq = q1 - q0
        m0 = m * BM
        where m <= q1 // BM - q0 // BM

    role load: warps 1
    role row[BM // 16]: warps 1

    pipeline xs[1] load -> row:
        o: bf16[BM, D] swizzle(128)
        do: bf16[BM, D] swizzle(128)

    do load:
        for t in tiles:
            with xs.fill() as s:
                tma.load(s.o, o[t.q0 + t.m0 : t.q0 + t.m0 + BM, t.h, :])
                tma.load(s.do, do[t.q0 + t.m0 : t.q0 + t.m0 + BM, t.h, :])

    do row as w:
        zero: f32[2, 256] spread(4)
        for t in tiles:
            block = t.q0 // BM + t.b + t.m
            zero = 0.0
            for i in unroll(D // 32):               # 16 D of the D BM elements
                row = (w * (D // 32) + i) * 2
                store(dq_sum[t.h, block, row // (QW // 4), row % (QW // 4) + rows(zero), cols(zero)], zero)
            s = xs.wait()
            delta = sum(f32(ldmatrix(s.o[16 * w : 16 * w + 16])) * f32(ldmatrix(s.do[16 * w : 16 * w + 16])), axis=1)
            xs.release()
            r = 16 * w + rows(delta)
            some = t.m0 + r < t.nq
            l = load(lse[t.h, t.q0 + t.m0 + r], where=some, other=1e30)
            store(stats[t.h, block, 0, r], where(l > -inf, l, 1e30))
            store(stats[t.h, block, 1, r], where(some, delta, 0.0))

# A tile is BN keys of a key head; each of two warpgroups owns 64 of them and walks the blocks of queries that see them, head by head
# of the group. S and dP are computed transposed, keys by queries, so that P.T and dS.T are left operands in registers and dK and dV
# never leave theirs. dQ needs dS of all keys: it goes through shared memory, each warpgroup computes a half of the block's dQ, and
# bulk reductions add that in global memory, 16 KB in one copy (at 1 KB each they take a seventh longer). Two halves of `ds` take
# turns, so that one barrier a block is enough. S, dP and dQ read 128 bytes of shared memory a cycle, all there is, dV and dK half of
# it: with D=128 dQ is best stored under dK. With D=64 exponentials take longer than S and dP, and what dQ waits for is hidden there.
kernel backward(q: bf16[TQ, H, D], k: bf16[TK, HK, D], v: bf16[TK, HK, D], do: bf16[TQ, H, D],
                stats: f32[H, TQ // BM + B, 2, BM], cu_q: i32[B + 1], cu_k: i32[B + 1], max_k: i32, scale_log2: f32,
                inout dq_sum: f32[H, TQ // BM + B, 2, QW // 4, 256], out dk: bf16[TK, HK, D],
                out dv: bf16[TK, HK, D]) for sm_90a:
    const STAGES: {1, 2} = 2
    const HG: {1, 4, 16} = 16                       # heads walked together: 1 for L2 reuse, many for balance
    const LATE: {False, True} = where(D == 64, True, False)  # dQ is stored under S and dP of the next block, else under dK of this

    where H % HK == 0
    assume increasing(cu_q), increasing(cu_k), cu_q[0] == 0, cu_k[0] == 0, cu_q[B] == TQ, cu_k[B] == TK
    assume finite(q), finite(k), finite(v), finite(do), finite(stats)

    tiles dynamic(load):
        b in B
        h in HK grouped(HG)
        i in cdiv(max_k, BN)
        q0 = load(cu_q[b])
        k0 = load(cu_k[b])
        nq = load(cu_q[b + 1]) - q0
        nk = load(cu_k[b + 1]) - k0
        n0 = i * BN
        where n0 < nk
        blocks = cdiv(nq, BM)
        first = where(CAUSAL, min(blocks, max(0, n0 + nq - nk) // BM), 0)               # the first block that sees a key of the tile
        plain = where(CAUSAL, min(blocks, cdiv(max(0, n0 + BN - 1 + nq - nk), BM)), 0)  # from here on all see all

    role load: warps 4, registers 24
    role math[2]: warps 4, registers 240

    pipeline kvs[1] load -> math:
        k: bf16[BN, D] swizzle(128)
        v: bf16[BN, D] swizzle(128)
    pipeline qs[STAGES] load -> math:
        q: bf16[BM, D] swizzle(128)
        stats: f32[2, BM]
    pipeline dos[STAGES] load -> math:
        do: bf16[BM, D] swizzle(128)
    pipeline dqs[1] math -> store:
        dq: f32[64 * QW]

    smem ds: bf16[2, BM, BN] swizzle(128)

    do load:
        for t in tiles:
            with kvs.fill() as s:
                tma.load(s.k, k[t.k0 + t.n0 : t.k0 + t.n0 + BN, t.h, :])
                tma.load(s.v, v[t.k0 + t.n0 : t.k0 + t.n0 + BN, t.h, :])
            for g in range(H // HK):
                h = t.h * (H // HK) + g
                for i in range(t.first, t.blocks):
                    r = t.q0 + i * BM
                    with qs.fill() as s:
                        tma.load(s.q, q[r : r + BM, h, :])
                        tma.load(s.stats, stats[h, t.q0 // BM + t.b + i, :, :])
                    with dos.fill() as s:
                        tma.load(s.do, do[r : r + BM, h, :])

    do math as w:
        s: f32[64, BM] frag                         # S, then P, transposed
        dp: f32[64, BM] frag
        p: bf16[64, BM] frag
        e: bf16[64, BM] frag                        # dS, transposed
        dk_acc: f32[64, D] frag
        dv_acc: f32[64, D] frag
        dq: f32[64, QW] frag                        # a part of dQ, transposed
        scale = scale_log2 * 0.6931471805599453
        for t in tiles:
            dk_acc = 0.0
            dv_acc = 0.0
            if LATE:
                dq = 0.0
            kv = kvs.wait()
            key = t.n0 + 64 * w + rows(s)
            for g in range(H // HK):
                h = t.h * (H // HK) + g
                for i in range(t.first, t.blocks):
                    j = g * (t.blocks - t.first) + i  # goes on from head to head, so that halves of ds alternate
                    qt = qs.wait()
                    dp = -load(qt.stats[1, cols(dp)])
                    wgmma(s, kv.k[64 * w : 64 * w + 64], qt.q.T, use_acc=False)
                    dot = dos.wait()
                    wgmma(dp, kv.v[64 * w : 64 * w + 64], dot.do.T)
                    if LATE and i > t.first:
                        with dqs.fill() as o:
                            store(o.dq[lin(dq)], dq)
                        tma.reduce(dq_sum[h, t.q0 // BM + t.b + i - 1, w, :, :], o.dq, add)
                    wgmma.wait(s)
                    s = exp2(s * scale_log2 - load(qt.stats[0, cols(s)]))
                    if i < t.plain:
                        s = where(key <= i * BM + cols(s) + (t.nk - t.nq), s, 0.0)
                    if (i + 1) * BM > t.nq:
                        s = where(i * BM + cols(s) < t.nq, s, 0.0)
                    if t.n0 + BN > t.nk:
                        s = where(key < t.nk, s, 0.0)
                    p = bf16(s)
                    wgmma(dv_acc, p, dot.do)
                    wgmma.wait(dp)
                    e = bf16(s * dp)
                    stmatrix(ds[j % 2, :, 64 * w : 64 * w + 64].T, e)
                    fence.async()
                    sync(math)
                    if D == 128:                    # all queries of the block, 64 columns each
                        wgmma(dq, kv.k[:, 64 * w : 64 * w + 64].T, ds[j % 2].T, use_acc=False)
                    else:                           # all columns, half of the queries each
                        wgmma(dq, kv.k.T, ds[j % 2, QW * w : QW * w + QW].T, use_acc=False)
                    wgmma(dk_acc, e, qt.q)
                    wgmma.wait(dv_acc)
                    dos.release()
                    wgmma.wait(dq)
                    if not LATE:
                        with dqs.fill() as o:
                            store(o.dq[lin(dq)], dq)
                        tma.reduce(dq_sum[h, t.q0 // BM + t.b + i, w, :, :], o.dq, add)
                    wgmma.wait(dk_acc)
                    qs.release()
                if LATE:                            # the last one; zeros where there was none
                    with dqs.fill() as o:
                        store(o.dq[lin(dq)], dq)
                    tma.reduce(dq_sum[h, t.q0 // BM + t.b + max(0, t.blocks - 1), w, :, :], o.dq, add)
            sync(math)                              # K has been read by both: dK and dV leave through its stage
            r = t.n0 + 64 * w
            if t.n0 + BN <= t.nk:
                stmatrix(kv.k[64 * w : 64 * w + 64], bf16(dk_acc * scale))
                stmatrix(kv.v[64 * w : 64 * w + 64], bf16(dv_acc))
                fence.async()
                sync()
                tma.store(dk[t.k0 + r : t.k0 + r + 64, t.h, :], kv.k[64 * w : 64 * w + 64])
                tma.store(dv[t.k0 + r : t.k0 + r + 64, t.h, :], kv.v[64 * w : 64 * w + 64])
                tma.store.wait_read()
            else:                                   # the next sequence's rows follow: store only this one's
                own = r + rows(dk_acc)
                store(dk[t.k0 + own, t.h, cols(dk_acc)], bf16(dk_acc * scale), where=own < t.nk)
                store(dv[t.k0 + own, t.h, cols(dv_acc)], bf16(dv_acc), where=own < t.nk)
            kvs.release()

# dQ in bf16, turned round on the way.
kernel finish(dq_sum: f32[H, TQ // BM + B, 2, QW // 4, 256], cu_q: i32[B + 1], max_q: i32, scale_log2: f32,
              out dq: bf16[TQ, H, D]) for sm_90a:
    assume increasing(cu_q), cu_q[0] == 0, cu_q[B] == TQ

    tiles once:
        from_last in B                              # what was added to last may still be in L2
        back in cdiv(max_q, BM)
        h in H
        b = B - 1 - from_last
        m = cdiv(max_q, BM) - 1 - back
        q0 = load(cu_q[b])
        nq = load(cu_q[b + 1]) - q0
        m0 = m * BM
        where m0 < nq

    role load: warps 1
    role part[2]: warps 4

    pipeline xs[1] load -> part:
        dq: f32[2, 64 * QW]

    smem turned: bf16[2, QW, 64] swizzle(128)

    do load:
        for t in tiles:
            with xs.fill() as s:
                for u in unroll(2):
                    tma.load(s.dq[u], dq_sum[t.h, t.q0 // BM + t.b + t.m, u, :, :])

    do part as w:
        a: f32[64, QW] frag
        v: bf16[QW, 64] spread(8)
        for t in tiles:
            s = xs.wait()
            a = load(s.dq[w, lin(a)])
            xs.release()
            stmatrix(turned[w].T, bf16(a * (scale_log2 * 0.6931471805599453)))
            sync()
            v = load(turned[w, rows(v), cols(v)])
            r = t.m0 + where(D == 128, 0, QW * w) + rows(v)
            store(dq[t.q0 + r, t.h, where(D == 128, 64 * w, 0) + cols(v)], v, where=r < t.nq)

sequence attention_backward(q: bf16[TQ, H, D], k: bf16[TK, HK, D], v: bf16[TK, HK, D], o: bf16[TQ, H, D],
                            do: bf16[TQ, H, D], lse: f32[H, TQ], cu_q: i32[B + 1], cu_k: i32[B + 1], max_q: i32,
                            max_k: i32, scale_log2: f32, out dq: bf16[TQ, H, D], out dk: bf16[TK, HK, D],
                            out dv: bf16[TK, HK, D]):
    temp stats: f32[H, TQ // BM + B, 2, BM]
    temp dq_sum: f32[H, TQ // BM + B, 2, QW // 4, 256]
    temp tile_counter: i32[1] zero
    prepare(o, do, lse, cu_q, max_q, stats, dq_sum)
    backward(q, k, v, do, stats, cu_q, cu_k, max_k, scale_log2, dq_sum, dk, dv, tile_counter)
    finish(dq_sum, cu_q, max_q, scale_log2, dq)
