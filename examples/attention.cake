# Y = softmax(scale * Q K.T, causal or not) V, over packed sequences of different lengths, with grouped heads; bf16 in and
# out, f32 softmax. cu_q and cu_k are the prefix sums of the sequences' lengths; a causal mask aligns the last query of a
# sequence with its last key. With LSE the log2 of each row's sum is an output too.
#
# WGS warpgroups own 64 queries each and take turns at the tensor cores. In its turn a warpgroup issues Q K.T of one block of
# keys and P V of the block before; the softmax of the one then runs under the other. Blocks are walked from the last key to
# the first, so that the blocks that need a mask come first; one skewed loop says all of it, and `split` makes the prologue,
# the masked, the plain and the final part into straight loops. Tiles take unequal times, so each is drawn from a counter when
# its CTA is free: the longest of a head first, HG heads together, so that the short ones fill the end of the grid.
#
# S, P and O lie in registers: BN / 2 + BN / 4 + D / 2 of a thread. So wide heads take narrow blocks (D=256: 80 keys), and
# narrow heads, whose exponentials take as long as their products, take a third warpgroup to cover them (D=64).
kernel attention(q: bf16[TQ, H, D], k: bf16[TK, HK, D], v: bf16[TK, HK, D], cu_q: i32[B + 1], cu_k: i32[B + 1],
                 max_q: i32, scale_log2: f32, out y: bf16[TQ, H, D], out lse: f32[H, TQ] if LSE) for sm_90a:
    const D: {64, 128, 256} = 128
    const WGS: {2, 3} = 2
    const BM = 64 * WGS
    const BN: {64, 80, 112, 128, 160, 176} = 128
    const Q_STAGES: {1, 2} = 2                      # 2: the queries of the next tile come while this one is at work
    const KV_STAGES: {2, 3} = 2
    const HG: {1, 4, 16} = 16                       # heads walked together: 1 for L2 reuse, many for balance
    const CAUSAL: {False, True} = True
    const LSE: {False, True} = False

    where BN * 3 // 4 + D // 2 <= where(WGS == 2, 196, 128)  # what the register budgets below leave room for
    where H % HK == 0
    assume increasing(cu_q), increasing(cu_k), cu_q[0] == 0, cu_k[0] == 0, cu_q[B] == TQ, cu_k[B] == TK
    assume finite(v)                                # 0 * v is 0 where a key is masked

    tiles dynamic(load):
        b in B
        h in H grouped(HG)
        i in cdiv(max_q, BM)
        q0 = load(cu_q[b])
        k0 = load(cu_k[b])
        nq = load(cu_q[b + 1]) - q0
        nk = load(cu_k[b + 1]) - k0
        m0 = (cdiv(nq, BM) - 1 - i) * BM            # first query of the tile within its sequence: the last tile comes first
        where m0 >= 0
        seen = where(CAUSAL, min(nk, m0 + BM + nk - nq), nk)  # keys that some query of the tile sees
        full = where(CAUSAL, min(nk, m0 + 1 + nk - nq), nk)   # keys that every query of the tile sees
        blocks = max(1, cdiv(seen, BN))
        masked = max(1, blocks - max(0, full) // BN)

    role load: warps 4, registers where(WGS == 2, 24, 32)
    role math[WGS]: warps 4, registers where(WGS == 2, 240, 160)

    pipeline qs[Q_STAGES] load -> math:
        q: bf16[BM, D] swizzle(128)
    pipeline ks[KV_STAGES] load -> math:
        k: bf16[BN, D] swizzle(128)
    pipeline vs[KV_STAGES] load -> math:
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
            top: f32[64, 1] frag = -1e30            # running row maximum; finite, so that a fully masked row stays 0
            den: f32[64, 4] frag = 0.0              # running row sum, one partial sum a thread
            o = 0.0
            row = t.m0 + 64 * w + rows(s)
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
            if t.m0 + BM <= t.nq:                   # whole tile inside its sequence: through the Q stage, by TMA
                stmatrix(qt.q[64 * w : 64 * w + 64], bf16(o))
                fence.async()
                sync()
                tma.store(y[r0 : r0 + 64, t.h, :], qt.q[64 * w : 64 * w + 64])
                tma.store.wait_read()
            else:                                   # the next sequence's rows follow: store only this one's
                store(y[t.q0 + row, t.h, cols(o)], bf16(o), where=row < t.nq)
            qs.release()
