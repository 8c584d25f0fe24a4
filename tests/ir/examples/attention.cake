# Attention forward over packed, ragged sequences (cu_q and cu_k hold the running sums of their lengths); several query
# heads may share a key head. bf16 operands, f32 softmax; a causal mask puts the last query on the last key.
# 64 queries a warpgroup, two warpgroups, one turn: the products Q K(i).T and P V(i-1) go out back to back, and the softmax
# of block i hides the second one. Keys are walked backwards, so blocks that need a mask are met first; the one loop is
# cut by split() into its prologue, its masked part, its plain part and its end.
kernel attention(q: bf16[TQ, H, D], k: bf16[TK, HK, D], v: bf16[TK, HK, D], cu_q: i32[B + 1], cu_k: i32[B + 1],
                 max_q: i32, scale_log2: f32, out y: bf16[TQ, H, D], out lse: f32[H, TQ] if LSE) for sm_90a:
    const D: {64, 128, 256} = 128
    const BM = 128
    const BN: {64, 80, 128, 176} = 128
    const HG: {1, 4, 16} = 16                       # few: L2 reuse; many: balance
    const CAUSAL: {False, True} = True
    const LSE: {False, True} = False

    where H % HK == 0
    assume increasing(cu_q), increasing(cu_k), cu_q[0] == 0, cu_k[0] == 0, cu_q[B] == TQ, cu_k[B] == TK
    assume finite(v)                                # masked weights are 0, and 0 times it must stay 0

    tiles dynamic(load):
        b in B
        h in H grouped(HG)
        i in cdiv(max_q, BM)                        # within a head: longest tile first
        q0 = load(cu_q[b])
        k0 = load(cu_k[b])
        nq = load(cu_q[b + 1]) - q0
        nk = load(cu_k[b + 1]) - k0
        m0 = (cdiv(nq, BM) - 1 - i) * BM            # of the tile's first query in its sequence
        where m0 >= 0
        seen = where(CAUSAL, min(nk, m0 + BM + nk - nq), nk)        # seen by at least one query
        full = where(CAUSAL, min(nk, m0 + 1 + nk - nq), nk)         # seen by every query
        blocks = max(1, cdiv(seen, BN))
        masked = max(1, blocks - max(0, full) // BN)

    role load: warps 4, registers 24
    role math[2]: warps 4, registers 240

    pipeline qs[1] load -> math:
        q: bf16[BM, D] swizzle(128)
    pipeline ks[2] load -> math:
        k: bf16[BN, D] swizzle(128)
    pipeline vs[2] load -> math:
        v: bf16[BN, D] swizzle(128)

    turn tensor_cores: math

    do load:
        for t in tiles:
            g = t.h // (H // HK)
            with qs.fill() as s:
                tma.load(s.q, q[t.q0 + t.m0 : t.q0 + t.m0 + BM, t.h, :])
            for i in range(t.blocks + 1):
                r = t.k0 + (t.blocks - 1 - i) * BN
                if i < t.blocks:
                    with ks.fill() as s:
                        tma.load(s.k, k[r : r + BN, g, :])
                if i > 0:
                    with vs.fill() as s:
                        tma.load(s.v, v[r + BN : r + 2 * BN, g, :])

    do math as w:
        s: f32[64, BN] frag
        p: bf16[64, BN] frag
        o: f32[64, D] frag
        for t in tiles:
            top: f32[64, 1] frag = -1e30            # finite start: rows without keys give 0
            den: f32[64, 4] frag = 0.0              # a lane's own share of each sum
            o = 0.0
            row = t.m0 + 64 * w + rows(s)           # the row's query in its sequence
            qt = qs.wait()
            for i in range(t.blocks + 1) split(1, t.masked, t.blocks):
                with tensor_cores:
                    if i < t.blocks:
                        kb = ks.wait()
                        wgmma(s, qt.q[64 * w : 64 * w + 64], kb.k.T, use_acc=False)
                    if i > 0:
                        vb = vs.wait()
                        wgmma(o, p, vb.v)
                if i < t.blocks:
                    wgmma.wait(s)
                    ks.release()
                    if i < t.masked:
                        col = (t.blocks - 1 - i) * BN + cols(s)
                        s = where(col < t.nk, s, -inf)
                        if CAUSAL:
                            s = where(col <= row + (t.nk - t.nq), s, -inf)
                    new = max(top, max(s, axis=1))
                    fade = exp2((top - new) * scale_log2)
                    s = exp2(s * scale_log2 - new * scale_log2)
                    den = den * fade + sum(s, axis=1, to=4)
                    top = new
                    if i > 0:
                        wgmma.wait(o)
                        vs.release()
                        o = o * fade
                    p = bf16(s)
                else:
                    wgmma.wait(o)
                    vs.release()
            total = sum(den, axis=1)
            o = where(total > 0.0, o / total, 0.0)
            if LSE:
                store(lse[t.h, t.q0 + row], top * scale_log2 + log2(total), where=row < t.nq)
            r0 = t.q0 + t.m0 + 64 * w
            if t.m0 + BM <= t.nq:                   # all rows are ours: leave through the Q stage
                stmatrix(qt.q[64 * w : 64 * w + 64], bf16(o))
                fence.async()
                sync()
                tma.store(y[r0 : r0 + 64, t.h, :], qt.q[64 * w : 64 * w + 64])
                tma.store.wait_read()
                sync()
            else:                                   # the tile ends inside the next sequence
                store(y[t.q0 + row, t.h, cols(o)], bf16(o), where=row < t.nq)
            qs.release()
