"use strict";
// The data of the page, and what stands in which lane.
const D = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const byId = new Map(D.events.map(e => [e[0], e]));
const ID = 0, TICK = 1, KIND = 2, WHO = 3, SITE = 4, WORDS = 5, RINGS = 6;
const OP = { id: 0, name: 1, who: 2, site: 3, tick: 4, event: 5, reads: 6, writes: 7 };
const state = { roles: new Set(D.roles), rings: new Set(D.rings), ctas: new Set(D.agents.map(a => a.cta)), warps: false,
  from: D.ticks[0], scale: 8, chosen: null, over: null };
const into = new Map(), outof = new Map();
for (const [a, b, kind] of D.edges) {
  (outof.get(a) || outof.set(a, []).get(a)).push([b, kind]);
  (into.get(b) || into.set(b, []).get(b)).push([a, kind]);
}
const THROUGH = new Set(["phase", "nb_gen", "cl_gen"]);  // events of a barrier itself: edges go through them
const HEIGHT = { head: 20, warp: 22, ops: 17, slot: 17, barriers: 17 };

function instanceName(role, instance) {
  if (!role) return "other warps";
  return D.instances[role] > 1 ? `${role}[${instance}]` : role;
}

// Which marks an event is part of, by kind.
function looks(e) {
  const words = D.words[e[WORDS]];
  switch (e[KIND]) {
    case "access": return words.includes("registers ") ? "registers" : words.startsWith("read") ? "read" : "write";
    case "wait": case "pass": return "wait";
    case "nb": return "sync";
    case "cl_arrive": case "cl_wait": case "join": return "sync";
    case "contrib": return "arrive";
    case "issue": return "issue";
    case "fence": return "fence";
    case "commit": case "gwait": return "group";
    default: return "other";
  }
}

function label(mark) {
  const site = D.sites[mark.site];
  if (!site) return mark.kind === "other" ? D.words[mark.events[0][WORDS]] : "";
  if (mark.kind === "wait" || mark.kind === "arrive") return D.words[mark.events[0][WORDS]].split(":")[0].replace("wait for ", "wait ").split(" phase")[0];
  return site.name;
}

// All lanes from top to bottom: {type, name, y, height, marks}. Marks: {lane, from, to, kind, site, events, part, parts, name}.
let lanes = [], marks = [], markOf = new Map(), height = 0;

function build() {
  lanes = []; marks = []; markOf = new Map();
  const ctas = [...state.ctas].sort((a, b) => a - b);
  const groups = new Map();
  D.agents.forEach((a, i) => {
    const key = `${a.cta}/${a.role}/${a.instance}`;
    (groups.get(key) || groups.set(key, []).get(key)).push(i);
  });
  const events = new Map(), ops = new Map();
  for (const e of D.events) for (const w of new Set(e[WHO])) (events.get(w) || events.set(w, []).get(w)).push(e);
  for (const o of D.ops) (ops.get(o[OP.who]) || ops.set(o[OP.who], []).get(o[OP.who])).push(o);
  for (const cta of ctas) {
    if (ctas.length > 1 || D.agents.some(a => a.cta !== cta)) lane("head", `CTA ${cta}`);
    for (const role of [...D.roles, ""]) {
      if (role && !state.roles.has(role)) continue;
      for (const [key, members] of groups) {
        const a = D.agents[members[0]];
        if (a.cta !== cta || a.role !== role) continue;
        const warps = [...new Set(members.map(i => D.agents[i].warp))];
        const name = instanceName(role, a.instance);
        const span = warps.length > 1 ? `warps ${warps[0]}–${warps[warps.length - 1]}` : `warp ${warps[0]}`;
        if (state.warps) for (const w of warps) fill(lane("warp", `${name} · warp ${w}`), members.filter(i => D.agents[i].warp === w), events);
        else fill(lane("warp", `${name} · ${span}`), members, events);
        const mine = members.flatMap(i => ops.get(i) || []);
        if (mine.length) bars(mine, name);
      }
    }
    for (const s of D.slots) if (s.cta === cta && state.rings.has(s.ring)) slotLane(s);
    barrierLane(cta);
  }
  let y = 22;
  for (const l of lanes) { l.y = y; y += HEIGHT[l.type]; }
  height = y + 6;
}

function lane(type, name) {
  const l = { type, name, y: 0, height: HEIGHT[type] };
  lanes.push(l);
  return l;
}

function add(mark) {
  mark.part = 0; mark.parts = 1;
  marks.push(mark);
  for (const e of mark.events) if (!markOf.has(e[ID])) markOf.set(e[ID], mark);  // slots come last, and only show again
  return mark;
}

function fill(l, members, events) {
  const found = new Map(), mine = new Set();
  for (const i of members) for (const e of events.get(i) || []) {
    if (mine.has(e[ID])) continue;
    mine.add(e[ID]);
    const kind = looks(e), long = kind === "wait" || (kind === "sync" && e[KIND] === "nb");
    const key = long ? `${kind}/${e[SITE]}` : `${kind}/${e[SITE]}/${e[TICK]}/${e[SITE] < 0 ? e[KIND] : ""}`;
    let m = found.get(key);
    if (!m) found.set(key, m = { lane: l, from: e[TICK], to: e[TICK] + 1, kind, site: e[SITE], events: [] });
    m.events.push(e);
    m.from = Math.min(m.from, e[TICK]);
    m.to = Math.max(m.to, e[TICK] + 1, ...(e[KIND] === "nb" ? ends(e) : []));
  }
  const list = [...found.values()].sort((a, b) => a.from - b.from || a.to - b.to);
  for (const m of list) m.name = label(m);
  const points = new Map();
  list.sort((a, b) => (b.to - b.from > 1) - (a.to - a.from > 1) || a.from - b.from);  // long ones below
  for (const m of list) { add(m); if (m.to - m.from === 1) (points.get(m.from) || points.set(m.from, []).get(m.from)).push(m); }
  for (const same of points.values()) same.forEach((m, i) => { m.part = i; m.parts = same.length; });
  const at = [...points.keys()].sort((a, b) => a - b);
  for (const m of list) if (m.to - m.from > 1) m.under = at.filter(t => t >= m.from && t < m.to);  // what is drawn over a long one
}

// Where the generation that a barrier arrival belongs to completes.
function ends(e) {
  return (into.get(e[ID]) || []).filter(([a]) => byId.has(a)).map(([a]) => byId.get(a)[TICK] + 1);
}

function bars(list, owner) {
  const found = new Map(), end = D.ticks[1] + 1;
  for (const o of list) {
    const key = `${o[OP.site]}/${o[OP.tick]}/${o[OP.name]}`;
    let m = found.get(key);
    if (!m) found.set(key, m = { from: o[OP.tick], to: o[OP.tick] + 1, read: null, kind: "async", site: o[OP.site], events: [], ops: [], open: false });
    m.ops.push(o);
    for (const part of ["reads", "writes"]) {
      const at = o[OP[part]];
      if (at && byId.has(at[1])) m.events.push(byId.get(at[1]));
      if (part === "writes") { m.to = Math.max(m.to, at ? at[0] : end); m.open = m.open || !at; }
      else if (at) m.read = Math.max(m.read || 0, at[0]);
    }
  }
  for (const m of found.values()) {
    for (const e of [...m.events]) for (const [b, kind] of outof.get(e[ID]) || []) if (kind === "bytes" && byId.has(b)) m.events.push(byId.get(b));
    const words = D.words[byId.get(m.ops[0][OP.event])[WORDS]];
    const to = words.match(/(?:write|update) ([\w.]+\[\d+\])/);
    m.name = m.ops[0][OP.name] + (m.ops[0][OP.name] === "tma.load" && to ? ` ${to[1]}` : m.ops.length > 1 ? ` ×${m.ops.length}` : "");
  }
  const rows = [];
  for (const m of [...found.values()].sort((a, b) => a.from - b.from)) {
    let at = rows.findIndex(r => r.free <= m.from);
    if (at < 0) { at = rows.length; rows.push({ lane: lane("ops", at ? "" : `${owner} · in flight`), free: 0 }); }
    rows[at].free = m.to;
    m.lane = rows[at].lane;
    add(m);
  }
}

function slotLane(s) {
  const l = lane("slot", `${s.ring}[${s.slot}]${s.owner === null ? "" : ` of ${instanceName(...s.owner)}`}`);
  for (const [from, to, kind, fillNumber, position, event] of s.segments) {
    const parity = kind === "stored" ? "" : `, phase ${fillNumber}, parity ${fillNumber & 1}`;
    const m = add({ lane: l, from, to: Math.max(to, from + 1), kind, site: -1, events: [byId.get(event)].filter(Boolean), ring: s.ring,
      name: `${kind} ${position}`, text: `slot ${s.slot} of ${s.ring}: ${kind}, fill ${position}${parity}` });
    m.slot = s;
  }
}

function barrierLane(cta) {
  const l = lane("barriers", "barriers complete");
  const home = e => { const m = (into.get(e[ID]) || []).map(([a]) => byId.get(a)).find(x => x && x[WHO].length); return m ? D.agents[m[WHO][0]].cta : 0; };
  const found = new Map();
  for (const e of D.events) if (THROUGH.has(e[KIND]) && home(e) === cta) (found.get(e[TICK]) || found.set(e[TICK], []).get(e[TICK])).push(e);
  for (const [tick, list] of found) add({ lane: l, from: tick, to: tick + 1, kind: "other", site: -1, events: list, name: "" });
}
