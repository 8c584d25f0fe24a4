# Y = softmax(scale * Q K.T) V for each of B * H heads of one length, bf16 in and out, f32 softmax, for Hopper.
#
# Two warpgroups own 64 queries each and share every block of keys and values. They alternate at the tensor cores: in its turn
# a warpgroup computes Q K.T of a block and hands the turn on, so that its softmax runs under the other's product; P V follows
# outside the turn. The turn is a pair of named barriers passed around, and the order that it gives is the only one between
# the warpgroups. Keys and values have rings of their own, because keys are free half a block earlier. Keys past the end of the
# sequence are masked in the last block; queries past it are computed and not stored.
kernel attention_alternating(q: bf16[BH, S, D], k: bf16[BH, S, D], v: bf16[BH, S, D], scale_log2: f32,
                             out y: bf16[BH, S, D]) for sm_90a:
    const D: {64, 128} = 64
    const BN: {64, 128} = 64

    assume finite(v)                                # 0 * v is 0 where a key is masked

    blocks = cdiv(S, BN)

    tiles persistent:
        h in BH
        m in cdiv(S, 128)

    role load: warps 4, registers 40
    role math[2]: warps 4, registers 232

    pipeline qs[1] load -> math:
        q: bf16[128, D] swizzle(128)
    pipeline ks[2] load -> math:
        k: bf16[BN, D] swizzle(128)
    pipeline vs[2] load -> math:
        v: bf16[BN, D] swizzle(128)

    turn tensor_cores: math

    do load:
        for t in tiles:
            with qs.fill() as s:
                tma.load(s.q, q[t.h, t.m * 128 : t.m * 128 + 128, :])
            for j in range(blocks):
                with ks.fill() as s:
                    tma.load(s.k, k[t.h, j * BN : j * BN + BN, :])
                with vs.fill() as s:
                    tma.load(s.v, v[t.h, j * BN : j * BN + BN, :])

    do math as w:
        s: f32[64, BN] frag
        o: f32[64, D] frag
        for t in tiles:
            top: f32[64, 1] frag = -1e30            # running maximum of each row
            den: f32[64, 1] frag = 0.0              # running sum of each row
            o = 0.0
            qt = qs.wait()
            for j in range(blocks):
                with tensor_cores:
                    kb = ks.wait()
                    wgmma(s, qt.q[64 * w : 64 * w + 64], kb.k.T, use_acc=False)
                wgmma.wait(s)
                ks.release()
                s = where(j * BN + cols(s) < S, s * scale_log2, -inf)
                new = max(top, max(s, axis=1))
                fade = exp2(top - new)
                s = exp2(s - new)
                den = den * fade + sum(s, axis=1)
                top = new
                o = o * fade
                vb = vs.wait()
                wgmma(o, bf16(s), vb.v)
                wgmma.wait(o)
                vs.release()
            qs.release()
            row = t.m * 128 + 64 * w + rows(o)
            store(y[t.h, row, cols(o)], bf16(o / den), where=row < S)
