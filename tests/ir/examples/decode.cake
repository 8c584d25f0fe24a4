# Decoding step of attention with a paged cache: a new token for every sequence, query heads grouped by key head. Each
# sequence is cut into Z parts of pages; the warps of a CTA take 16 tokens of a block each and merge at the end.
const D = 128
const Z: {1, 2, 4, 8, 16, 32} = 8

kernel decode_part(q: bf16[B, H, D], kc: bf16[P, PS, HK, D], vc: bf16[P, PS, HK, D], table: i32[B, PMAX],
                   lens: i32[B], scale_log2: f32, out po: f32[B, H, Z, D], out pl: f32[B, H, Z]) for sm_90a:
    const PS: {16, 64} = 16
    const G: {1, 2, 4, 8, 16} = 8
    const BT = 64
    const STAGES: {3, 4, 5, 6} = 5

    where H == G * HK
    assume within(lens, 1, PMAX * PS + 1), finite(vc)
    assume within(table, -1, P)                     # -1 marks a hole

    tiles once:
        b in B
        h in HK
        z in Z
        len = load(lens[b])
        per = cdiv(cdiv(len, BT), Z)
        j0 = z * per
        blocks = max(0, min(per, cdiv(len, BT) - j0))

    role load: warps 1
    role math[4]: warps 1

    pipeline qs[1] load -> math:
        q: bf16[16, D] swizzle(128)
    pipeline kv[STAGES] load -> math:
        k: bf16[BT, D] swizzle(128)
        v: bf16[BT, D] swizzle(128)

    smem po_s: f32[4, 16, D]
    smem top_s: f32[4, 16]
    smem den_s: f32[4, 16]

    do load:
        for t in tiles:
            with qs.fill() as s:
                tma.load(s.q, q[t.b, t.h * G : t.h * G + 16, :])    # surplus rows load other heads and are dropped below
            for j in range(t.blocks):
                with kv.fill() as s:
                    for u in unroll(BT // PS):
                        i = (t.j0 + j) * (BT // PS) + u
                        page = load(table[t.b, i], where=i * PS < t.len, other=-1)      # a hole loads zeros
                        tma.load(s.k[u * PS : u * PS + PS], kc[page, :, t.h, :])
                        tma.load(s.v[u * PS : u * PS + PS], vc[page, :, t.h, :])

    do math as w:
        s: f32[16, 16] frag
        o: f32[16, D] frag
        y: f32[16, D // 4] frag
        for t in tiles:
            top: f32[16, 1] frag = -1e30
            den: f32[16, 4] frag = 0.0
            o = 0.0
            qt = qs.wait()
            qf = ldmatrix(qt.q)
            qs.release()
            for j in range(t.blocks):
                st = kv.wait()
                s = 0.0
                mma(s, qf, st.k[16 * w : 16 * w + 16].T)
                tok = (t.j0 + j) * BT + 16 * w + cols(s)
                s = where(tok < t.len, s, -inf)
                new = max(top, max(s, axis=1))
                fade = exp2((top - new) * scale_log2)
                s = exp2(s * scale_log2 - new * scale_log2)
                den = den * fade + sum(s, axis=1, to=4)
                top = new
                o = o * fade
                mma(o, bf16(s), st.v[16 * w : 16 * w + 16])
                kv.release()
            store(po_s[w], o)
            store(top_s[w, rows(top)], top)
            store(den_s[w, rows(top)], sum(den, axis=1))
            sync(math)
            peak: f32[16, 1] frag = -1e30
            mass: f32[16, 1] frag = 0.0
            y = 0.0
            for u in unroll(4):
                peak = max(peak, load(top_s[u, rows(y)]))
            for u in unroll(4):
                f = exp2((load(top_s[u, rows(y)]) - peak) * scale_log2)
                mass = mass + f * load(den_s[u, rows(y)])
                y = y + f * load(po_s[u, rows(y), D // 4 * w + cols(y)])
            y = where(mass > 0.0, y / mass, 0.0)
            store(po[t.b, t.h * G + rows(y), t.z, D // 4 * w + cols(y)], y, where=rows(y) < G)
            if w == 0:
                store(pl[t.b, t.h * G + rows(y), t.z], peak * scale_log2 + log2(mass), where=rows(y) < G)

kernel decode_combine(po: f32[B, H, Z, D], pl: f32[B, H, Z], out y: bf16[B, H, D]) for sm_90a:
    tiles once:
        b in B
        g in cdiv(H, 4)

    role row[4]: warps 1

    do row as w:
        o: f32[1, D] spread(4)
        for t in tiles:
            h = t.g * 4 + w
            if h < H:
                peak: f32[1, 1] spread(1) = -1e30
                for z in unroll(Z):
                    peak = max(peak, load(pl[t.b, h, z]))
                o = 0.0
                den: f32[1, 1] spread(1) = 0.0
                for z in unroll(Z):
                    f = exp2(load(pl[t.b, h, z]) - peak)
                    den = den + f
                    o = o + f * load(po[t.b, h, z, cols(o)])
                store(y[t.b, h, cols(o)], bf16(o / den))

sequence paged_decode(q: bf16[B, H, D], kc: bf16[P, PS, HK, D], vc: bf16[P, PS, HK, D], table: i32[B, PMAX],
                      lens: i32[B], scale_log2: f32, out y: bf16[B, H, D]):
    temp po: f32[B, H, Z, D]
    temp pl: f32[B, H, Z]
    decode_part(q, kc, vc, table, lens, scale_log2, po, pl)
    decode_combine(po, pl, y)
