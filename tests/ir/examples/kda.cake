# The sequential half of chunked Kimi Delta Attention: S is carried from chunk to chunk; what depends on one chunk only is an
# input. With S [DK, DV] kept transposed in registers, each step is
#   V' := U - W S;   O := Qg S + A V';   S := diag(e) S + Kd.T V'
# and all left factors are register tiles, which spares two trips through shared memory.
const DK = 128
const DV = 128
const C = 64

kernel kda_recur(u: bf16[T, H, DV], w: bf16[T, H, DK], qg: bf16[T, H, DK], kd: bf16[T, H, DK], attn: bf16[T, H, C],
                 e: f32[NC, H, DK], cu: i32[B + 1], s0: f32[B, H, DV, DK], out o: bf16[T, H, DV],
                 out s1: f32[B, H, DV, DK]) for sm_90a:
    const SPLIT: {1, 2} = 1                         # how many CTAs divide a head's value columns
    const WGS = DV // 64 // SPLIT
    const STAGES: {2, 3} = 2

    assume increasing(cu), cu[0] == 0, cu[B] == T
    assume finite(attn), finite(kd)                 # 0 times what lies past a sequence is 0

    tiles once:
        b in B
        h in H
        v in SPLIT
        r0 = load(cu[b])
        n = load(cu[b + 1]) - r0
        c0 = r0 // C + b                            # where the sequence's chunks start in e

    role load: warps 4, registers 40
    role state[WGS]: warps 4, registers 232

    pipeline chunks[STAGES] load -> state:
        u: bf16[C, 64 * WGS] swizzle(128)
        w: bf16[C, DK] swizzle(128)
        qg: bf16[C, DK] swizzle(128)
        kd: bf16[C, DK] swizzle(128)
        attn: bf16[C, C] swizzle(128)
        e: f32[DK]
    pipeline os[2] state -> store:
        o: bf16[C, 64] swizzle(128)

    do load:
        for t in tiles:
            for i in range(cdiv(t.n, C)):
                r = t.r0 + i * C
                v0 = t.v * 64 * WGS
                with chunks.fill() as s:
                    tma.load(s.u, u[r : r + C, t.h, v0 : v0 + 64 * WGS])
                    tma.load(s.w, w[r : r + C, t.h, :])
                    tma.load(s.qg, qg[r : r + C, t.h, :])
                    tma.load(s.kd, kd[r : r + C, t.h, :])
                    tma.load(s.attn, attn[r : r + C, t.h, :])
                    tma.load(s.e, e[t.c0 + i, t.h, :])

    do state as g:
        st: f32[64, DK] frag                        # 64 columns of S, as rows
        vt: f32[64, C] frag                         # V' as rows
        ot: f32[64, C] frag                         # O as rows
        for t in tiles:
            v0 = (t.v * WGS + g) * 64
            st = load(s0[t.b, t.h, v0 + rows(st), cols(st)])
            for i in range(cdiv(t.n, C)):
                r = t.r0 + i * C
                c = chunks.wait()
                left = t.n - i * C                  # tokens to go, this chunk included
                sb = bf16(st)
                st = st * load(c.e[cols(st)])       # no wgmma is running yet
                vt = -f32(ldmatrix(c.u[:, 64 * g : 64 * g + 64].T))
                wgmma(vt, sb, c.w.T)                # minus U gives -V'
                wgmma(ot, sb, c.qg.T, use_acc=False)
                wgmma.wait(vt)
                vb = bf16(where(cols(vt) < left, -vt, 0.0))
                wgmma(ot, vb, c.attn.T)
                wgmma(st, vb, c.kd)
                wgmma.wait(st)
                chunks.release()
                if left >= C:
                    with os.fill() as y:
                        stmatrix(y.o.T, bf16(ot))
                    tma.store(o[r : r + C, t.h, v0 : v0 + 64], y.o)
                else:
                    store(o[r + cols(ot), t.h, v0 + rows(ot)], bf16(ot), where=cols(ot) < left)
            store(s1[t.b, t.h, v0 + rows(st), cols(st)], st)
