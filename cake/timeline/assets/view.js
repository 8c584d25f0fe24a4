"use strict";
// Moving about, choosing what is shown, and saying what a mark is.
const KINDS = [["wait", "wait for a barrier"], ["sync", "named or cluster barrier, warp join"], ["arrive", "arrive, announce"], ["issue", "issue"],
  ["async", "in flight: reading"], ["landing", "in flight: writing"], ["read", "read"], ["write", "write"], ["registers", "registers of operations in flight"],
  ["fence", "fence"], ["group", "commit, group wait"], ["filling", "slot filling"], ["full", "slot full"], ["stored", "slot being stored"]];

function relayout() { build(); names(); clamp(); draw(); }

function names() {
  $("names").innerHTML = `<div style="height:22px;line-height:22px;color:var(--soft)">tick</div>` + lanes.map(l =>
    `<div class="${l.type === "head" ? "head" : l.type === "warp" ? "" : "sub"}" style="height:${l.height}px;line-height:${l.height}px" title="${esc(l.name)}">${esc(l.name)}</div>`).join("");
}

function clamp() {
  const [a, b] = D.ticks, span = width() / state.scale;
  state.scale = Math.min(Math.max(state.scale, width() / (b - a + 2) * .98), 60);
  state.from = Math.max(a - 1, Math.min(state.from, b + 2 - span * .9));
}

function zoom(factor, x = width() / 2) {
  const at = state.from + x / state.scale;
  state.scale *= factor;
  clamp();
  state.from = at - x / state.scale;
  clamp(); draw();
}

function show(id) {
  const e = byId.get(id);
  if (!e) return;
  state.scale = Math.max(state.scale, 9);
  state.from = e[TICK] - width() / state.scale / 2;
  clamp();
}

function toFinding() {
  const f = D.finding, ids = [f.first, f.then].filter(i => i !== null && byId.has(i));
  if (!ids.length) return draw();
  const at = ids.map(i => byId.get(i)[TICK]), lo = Math.min(...at), hi = Math.max(...at);
  state.scale = Math.min(Math.max(width() / (hi - lo + 24), 2), 22);
  state.from = (lo + hi) / 2 - width() / state.scale / 2;
  clamp(); draw();
}

function chips(id, values, set, name) {
  $(id).innerHTML = values.map(v => `<button type="button" data-v="${esc(v)}">${esc(name(v))}</button>`).join("") || "none";
  $(id).addEventListener("click", ev => {
    const b = ev.target.closest("button");
    if (!b) return;
    const v = values.find(w => String(w) === b.dataset.v);
    if (set.has(v)) set.delete(v); else set.add(v);
    b.classList.toggle("off", !set.has(v));
    state.chosen = state.over = null;
    relayout();
  });
}

// ---- words ----

function who(e) {
  const warps = [...new Set(e[WHO].map(i => { const a = D.agents[i]; return `${instanceName(a.role, a.instance)} warp ${a.warp}`; }))];
  const half = new Set(e[WHO].map(i => D.agents[i].half));
  return warps.join(", ") + (half.size === 1 && warps.length ? (half.has("L") ? " (elected lane)" : " (other lanes)") : "");
}

function heading(m) {
  const s = D.sites[m.site], line = s && s.line !== null ? D.lines[s.line] : undefined, parts = [];
  if (m.text) parts.push(`<b>${esc(m.text)}</b>`);
  if (s) parts.push(`<b>${esc(s.what)}</b>${s.at ? ` <span>at ${esc(s.at)}</span>` : ""}`);
  if (s && s.why) parts.push(`<span>${esc(s.why)}</span>`);
  if (s && s.line !== null) parts.push(`<code class="src">${s.line}${line !== undefined ? "  " + esc(line.trim()) : ""}</code>`);
  return parts.join("<br>");
}

function lines(m) {
  const counts = new Map();
  const list = [...(m.ops || []).map(o => byId.get(o[OP.event])), ...m.events];
  for (const e of list) { const k = D.words[e[WORDS]].replace(/ a\d+:/, ":"); counts.set(k, [...(counts.get(k) || []), e]); }
  return [...counts].map(([words, es]) => {
    const warps = new Set(es.flatMap(e => e[WHO])), one = es.length === 1;
    const from = es[0][TICK], to = es[es.length - 1][TICK];
    return { words: one ? D.words[es[0][WORDS]] : words, who: one ? who(es[0]) : `${es.length} events, ${warps.size} half warps`, when: from === to ? `tick ${from}` : `ticks ${from}–${to}`, ids: es.map(e => e[ID]) };
  });
}

function tip(ev, i) {
  const m = marks[i], box = $("tip");
  const rows = lines(m).slice(0, 6).map(r => `${esc(r.words)} · <span>${esc(r.who)}</span> · ${r.when}`);
  box.innerHTML = [heading(m), ...rows].filter(Boolean).join("<br>");
  box.hidden = false;
  const r = box.getBoundingClientRect();
  box.style.left = Math.min(ev.clientX + 14, innerWidth - r.width - 8) + "px";
  box.style.top = (ev.clientY + 18 + r.height > innerHeight ? ev.clientY - r.height - 12 : ev.clientY + 18) + "px";
}

function link(id) {
  const e = byId.get(id), m = markOf.get(id);
  return `<li><a data-e="${id}">${esc(D.words[e[WORDS]])}</a> · ${esc(who(e) || (m && m.lane ? m.lane.name : ""))} · tick ${e[TICK]}</li>`;
}

function detail() {
  const m = state.chosen === null ? null : marks[state.chosen];
  if (!m) return;
  const own = new Set([...m.events.map(e => e[ID]), ...(m.ops || []).map(o => o[OP.event])]);
  const pairs = edgesOf(m), before = pairs.filter(p => own.has(p[1])).map(p => p[0]), after = pairs.filter(p => own.has(p[0])).map(p => p[1]);
  const list = ids => [...new Set(ids)].filter(i => byId.has(i)).sort((a, b) => a - b).slice(0, 60).map(link).join("") || "<li>none</li>";
  $("detail").innerHTML = `${heading(m)}<ul>${lines(m).map(r => `<li>${esc(r.words)} · ${esc(r.who)} · ${r.when} · event${r.ids.length > 1 ? "s" : ""} ${r.ids.slice(0, 12).join(", ")}${r.ids.length > 12 ? ", …" : ""}</li>`).join("")}</ul>
    <div class="cols"><div><b>after</b><ul>${list(before)}</ul></div><div><b>before</b><ul>${list(after)}</ul></div></div>`;
}

function choose(i) {
  const m = marks[i], e = m.events[0] || (m.ops ? byId.get(m.ops[0][OP.event]) : null);
  state.chosen = i;
  if (e) history.replaceState(null, "", `#e${e[ID]}`);  // a link to this page may name an event
  detail(); draw();
}

// ---- start ----

function header() {
  const constants = Object.entries(D.constants).map(([n, v]) => `${n}=${v}`).join(", ");
  const batch = D.batch[1] > 1 ? ` · clusters ${D.batch[0]} of ${D.batch[1]} batches that ran one after another` : "";
  $("about").innerHTML = `<span class="status ${esc(D.status)}">${esc(D.status)}</span>${D.status === "safe" ? `: ${esc(D.claim)}` : ""} · launch ${esc(D.launch)}${batch}${constants ? ` · ${esc(constants)}` : ""}`;
  if (D.cut) {
    $("cut").textContent = `The launch has ${D.cut.all} events; this page has the ${D.cut.shown} from event ${D.cut.first} to ${D.cut.last}.`;
    $("cut").hidden = false;
  }
  const f = D.finding;
  if (!f) return;
  const row = (name, text) => text ? `<dt>${name}</dt><dd>${esc(text)}</dd>` : "";
  $("finding").innerHTML = `<h2>${esc(f.code)}: ${esc(f.message)}</h2><dl>${row("contract", f.contract)}${row("line", f.line !== null ? `${f.line}${D.lines[f.line] !== undefined ? "  " + D.lines[f.line].trim() : ""}` : "")}${f.labels.map(l => row("related", `${l.line !== null ? `line ${l.line}: ` : ""}${l.text}`)).join("")}${f.facts.map(t => row("fact", t)).join("")}${f.witness.map((t, i) => row(`witness ${i + 1}`, t)).join("")}${row("help", f.help)}${f.blocked.length ? row("stopped", "nothing could go on: the lanes marked “never goes on” wait for ever") : ""}</dl>`;
  $("finding").hidden = false;
  $("goto").hidden = false;
}

function start() {
  header();
  chips("roles", D.roles, state.roles, v => v);
  chips("rings", D.rings, state.rings, v => v);
  chips("ctas", [...state.ctas].sort((a, b) => a - b), state.ctas, v => v);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = on => document.documentElement.dataset.theme = on ? "dark" : "light";
  paint(dark.matches);
  dark.addEventListener("change", ev => paint(ev.matches));
  $("theme").addEventListener("click", () => paint(document.documentElement.dataset.theme !== "dark"));
  build();
  const used = new Set(marks.map(m => m.kind));
  if (used.has("async")) used.add("landing");
  $("legend").innerHTML = KINDS.filter(k => used.has(k[0])).map(([k, t]) => `<li><i style="background:var(--${k})"></i>${t}</li>`).join("");
  $("warps").addEventListener("click", () => { state.warps = !state.warps; $("warps").setAttribute("aria-pressed", state.warps); state.chosen = state.over = null; relayout(); });
  $("in").addEventListener("click", () => zoom(1.6));
  $("out").addEventListener("click", () => zoom(1 / 1.6));
  $("fit").addEventListener("click", () => { state.scale = 0; state.from = D.ticks[0]; clamp(); state.from = D.ticks[0] - 1; draw(); });
  $("goto").addEventListener("click", toFinding);
  pointer();
  names(); clamp();
  state.from = D.ticks[0] - 1;
  if (D.finding) toFinding(); else draw();
  const wanted = location.hash.match(/^#e(\d+)$/), there = wanted && markOf.get(Number(wanted[1]));
  if (there) { show(Number(wanted[1])); choose(marks.indexOf(there)); }
  addEventListener("resize", () => { clamp(); draw(); });
}

function pointer() {
  let drag = null, moved = false;
  plot.addEventListener("pointerdown", ev => { drag = [ev.clientX, state.from]; moved = false; });
  addEventListener("pointerup", () => { drag = null; });
  plot.addEventListener("pointermove", ev => {
    if (drag && Math.abs(ev.clientX - drag[0]) > 3) { moved = true; state.from = drag[1] - (ev.clientX - drag[0]) / state.scale; clamp(); $("tip").hidden = true; return draw(); }
    const at = ev.target.dataset && ev.target.dataset.m !== undefined ? Number(ev.target.dataset.m) : null;
    if (at !== state.over) { state.over = at; draw(); }
    if (at === null) $("tip").hidden = true; else tip(ev, at);
  });
  plot.addEventListener("pointerleave", () => { $("tip").hidden = true; if (state.over !== null) { state.over = null; draw(); } });
  plot.addEventListener("click", ev => { if (!moved && ev.target.dataset && ev.target.dataset.m !== undefined) choose(Number(ev.target.dataset.m)); });
  plot.addEventListener("wheel", ev => {
    if (ev.ctrlKey) { ev.preventDefault(); zoom(Math.exp(-ev.deltaY / 300), ev.clientX - plot.getBoundingClientRect().left); }
    else if (ev.shiftKey || Math.abs(ev.deltaX) > Math.abs(ev.deltaY)) { ev.preventDefault(); state.from += (ev.deltaX || ev.deltaY) / state.scale; clamp(); draw(); }
  }, { passive: false });
  $("detail").addEventListener("click", ev => {
    const a = ev.target.closest("a");
    if (!a) return;
    const id = Number(a.dataset.e), m = markOf.get(id);
    show(id);
    if (m) choose(marks.indexOf(m)); else draw();
  });
  addEventListener("keydown", ev => {
    if (ev.key === "+" || ev.key === "-") return zoom(ev.key === "+" ? 1.6 : 1 / 1.6);
    if (state.chosen === null || !["ArrowLeft", "ArrowRight"].includes(ev.key)) return;
    const m = marks[state.chosen], row = marks.filter(k => k.lane === m.lane).sort((a, b) => a.from - b.from);
    const next = row[row.indexOf(m) + (ev.key === "ArrowRight" ? 1 : -1)];
    if (next) { ev.preventDefault(); show(next.events[0] ? next.events[0][ID] : next.ops[0][OP.event]); choose(marks.indexOf(next)); }
  });
}

start();
