"use strict";
// Drawing the marks that are in view, the edges of one of them, and the finding.
const plot = $("plot");
const esc = s => String(s).replace(/[&<>"']/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" }[c]));
const X = tick => (tick - state.from) * state.scale;
const width = () => plot.clientWidth || 900;

function shownMark(m) {
  if (D.rings.length === state.rings.size) return true;
  if (m.ring) return true;
  return m.events.some(e => e[RINGS].some(r => state.rings.has(r))) || !m.events.some(e => e[RINGS].length);
}

function box(m) {
  const x = X(m.from), w = Math.max((m.to - m.from) * state.scale - (state.scale > 6 ? 1 : 0), 1.6);
  const h = (m.lane.height - 4) / m.parts;
  return [x, m.lane.y + 2 + m.part * h, w, h - (m.parts > 1 ? .6 : 0)];
}

function draw() {
  const W = width(), right = state.from + W / state.scale, out = [];
  plot.setAttribute("height", height);
  out.push(`<defs><marker id="tip-end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" style="fill:var(--mark)"/></marker><marker id="tip-bad" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" style="fill:var(--bad)"/></marker></defs>`);
  for (const l of lanes) if (l.type === "head") out.push(`<rect class="band" x="0" y="${l.y}" width="${W}" height="${l.height}"/>`);
  axis(out, W);
  marks.forEach((m, i) => { if (m.to >= state.from && m.from <= right) mark(out, m, i, W); });
  finding(out);
  const m = state.over !== null ? marks[state.over] : state.chosen !== null ? marks[state.chosen] : null;
  if (m) edgesOf(m).forEach(([a, b]) => arrow(out, a, b));
  plot.innerHTML = out.join("");
}

function axis(out, W) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
  const step = steps.find(s => s * state.scale >= 64) || 10000;
  for (let t = Math.ceil(state.from / step) * step; X(t) < W; t += step)
    out.push(`<line class="grid" x1="${X(t)}" x2="${X(t)}" y1="16" y2="${height}"/><text class="axis" x="${X(t) + 3}" y="13">${t}</text>`);
}

function mark(out, m, i, W) {
  const [x, y, w, h] = box(m), faint = shownMark(m) ? "" : " dim", chosen = i === state.chosen ? " chosen" : "";
  const f = D.finding, hit = f && m.events.some(e => e[ID] === f.first || e[ID] === f.then) || (m.ops || []).some(o => f && (o[OP.event] === f.first || o[OP.event] === f.then));
  const late = m.kind === "async" && m.read !== null && m.read < m.to && m.read > m.from;
  out.push(`<rect class="m k-${m.kind}${faint}${chosen}${hit ? " bad" : ""}" data-m="${i}" x="${x}" y="${y}" width="${w}" height="${h}" rx="2"/>`);
  if (late) out.push(`<rect class="k-landing${faint}" style="pointer-events:none" x="${X(m.read)}" y="${y + 1}" width="${Math.max(x + w - X(m.read) - 1, 0)}" height="${Math.max(h - 2, 1)}"/>`);
  const [left, room] = gap(m, Math.max(x, 0), Math.min(x + w, W));
  if (m.name && room > 18 && h > 9) {
    const most = Math.floor((room - 6) / 5.6), text = m.name.length <= most ? m.name : most > 3 ? m.name.slice(0, most - 1) + "…" : "";
    if (text) out.push(`<text class="${faint.trim()}" x="${left + 3}" y="${y + h / 2 + 3.5}">${esc(text)}</text>`);
  }
}

// The widest part of a mark that nothing is drawn over: where it starts, and its width.
function gap(m, left, right) {
  let best = [left, m.under && m.under.length ? 0 : right - left], at = left;
  for (const t of m.under || []) {
    const from = Math.max(X(t), left);
    if (from - at > best[1]) best = [at, from - at];
    at = Math.max(at, X(t + 1));
  }
  return right - at > best[1] ? [at, right - at] : best;
}

// Edges of a mark, through the barriers' own events: pairs of event ids.
function edgesOf(m) {
  const pairs = [], seen = new Set(), own = new Set(m.events.map(e => e[ID]));
  const put = (a, b) => { const k = `${a}>${b}`; if (a !== b && !seen.has(k) && !(own.has(a) && own.has(b))) { seen.add(k); pairs.push([a, b]); } };
  const starts = [...m.events.map(e => e[ID]), ...(m.ops || []).map(o => o[OP.event])];
  for (const id of starts) {
    for (const [a] of into.get(id) || []) {
      const e = byId.get(a);
      if (e && THROUGH.has(e[KIND])) (into.get(a) || []).forEach(([b]) => put(b, id)); else put(a, id);
    }
    for (const [b] of outof.get(id) || []) {
      const e = byId.get(b);
      if (e && THROUGH.has(e[KIND])) (outof.get(b) || []).forEach(([c]) => put(id, c)); else put(id, b);
    }
  }
  return pairs;
}

function anchor(id, end) {
  const e = byId.get(id), m = markOf.get(id);
  if (!e || !m) return null;
  const [, y, , h] = box(m);
  const bar = m.ops && m.ops.some(o => o[OP.event] === id) ? m.from : e[TICK] + (m.kind === "async" ? 0 : end ? 1 : 0);
  return [X(Math.min(bar, m.to)), y + h / 2];
}

function arrow(out, a, b) {
  const p = anchor(a, true), q = anchor(b, false);
  if (!p || !q) return;
  const bend = Math.max(18, Math.abs(q[0] - p[0]) / 3);
  out.push(`<path class="edge" marker-end="url(#tip-end)" d="M${p[0]} ${p[1]}C${p[0] + bend} ${p[1]} ${q[0] - bend} ${q[1]} ${q[0]} ${q[1]}"/>`);
}

function finding(out) {
  const f = D.finding;
  if (!f) return;
  const end = X(D.ticks[1] + 1), blocked = new Map();
  for (const id of f.blocked) {
    const e = byId.get(id), m = markOf.get(id);
    if (e && m) blocked.set(m, Math.min(blocked.get(m) ?? Infinity, e[TICK] + 1));
  }
  for (const [m, tick] of blocked) {
    out.push(`<rect class="never" x="${X(tick)}" y="${m.lane.y + 1}" width="${Math.max(end - X(tick), 60)}" height="${m.lane.height - 2}"/>`);
    out.push(`<text class="badtext" x="${Math.max(X(tick), 0) + 5}" y="${m.lane.y + m.lane.height / 2 + 4}">never goes on</text>`);
  }
  const p = f.first !== null ? spot(f.first) : null, q = f.then !== null ? spot(f.then) : null;
  if (p && q && f.unordered) {
    const lift = Math.abs(q[1] - p[1]) < 30 ? 46 : 0, mx = (p[0] + q[0]) / 2, my = (p[1] + q[1]) / 2 + lift * .75;
    out.push(`<path class="missing" marker-end="url(#tip-bad)" d="M${p[0]} ${p[1]}C${mx} ${p[1] + lift} ${mx} ${q[1] + lift} ${q[0]} ${q[1]}"/>`);
    out.push(`<text class="badtext" text-anchor="middle" x="${Math.min(Math.max(mx, 60), width() - 60)}" y="${my - 5}">no edge: ${esc(f.code)}</text>`);
  }
  for (const [at, name] of [[p, f.unordered ? "first" : ""], [q, f.unordered ? "then" : f.code]])
    if (at && name) out.push(`<text class="badtext" text-anchor="middle" x="${at[0]}" y="${at[1] - at[2] / 2 - 3}">${esc(name)}</text>`);
}

// Middle of the mark of one of the finding's events; of an operation its bar.
function spot(id) {
  const m = marks.find(k => (k.ops || []).some(o => o[OP.event] === id)) || markOf.get(id);
  if (!m) return null;
  const [x, y, w, h] = box(m);
  return [x + Math.min(w / 2, 40), y + h / 2, h];
}
