"""CTAs of a cluster that add up halves of a sum for one another."""

from __future__ import annotations

JOINED = """
kernel sums(x: f32[M, N], out y: f32[N]) for sm_90a:
    const PARTS: {1, 2, 4} = 2

    where N % 4 == 0

    rows_each = cdiv(M, PARTS)

    tiles persistent:
        n in cdiv(N, 256)
        z in PARTS cluster(PARTS)

    role add: warps 2
    role join: warps 1

    pipeline sums[1] add -> join across(z):
        s: f32[256]

    do add:
        v: f32[1, 256] spread(4)
        for t in tiles:
            c = t.n * 256 + cols(v)
            v = 0.0
            for i in range(rows_each):
                r = t.z * rows_each + i
                v = v + load(x[r, c], where=r < M and c < N)
            with sums.fill() as o:
                store(o.s[cols(v)], v)

    do join:
        total: f32[1, 256 // PARTS] spread(1)
        for t in tiles:
            c = t.z * (256 // PARTS) + cols(total)
            s = sums.wait()
            total = load(s.s[c])
            for i in unroll(PARTS - 1):
                total = total + load(s.s.of((t.z + i + 1) % PARTS)[c])
            sums.release()
            store(y[t.n * 256 + c], total, where=t.n * 256 + c < N)
"""
"""Column sums: each CTA of a cluster adds a part of the rows, then joins all parts of its share of the columns."""
