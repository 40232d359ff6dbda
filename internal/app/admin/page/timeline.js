// Timeline: what happened in a namespace, object by object above, change by change below, the newest first.

import { button, element, number, path, plural, question, shortKind, shortName } from "./base.js";
import { difference, short, when, who } from "./detail.js";
import { drawHistogram, drawLanes, hatchesOf, holesOf, nearest, noteOf, scaleOf } from "./lanes.js";
import { VirtualList } from "./list.js";
import { clock, iso, isFixed, moment, range, windowOf } from "./time.js";

const page = 200; // changes that are asked for at a time
const buckets = 300;
const laneHeight = 26;
const childHeight = 22;
const histogramHeight = 53;
const ops = ["added", "updated", "deleted"];
const classes = { status: "status only", derived: "Events, Endpoints, Leases", child: "of children" };
const marks = { added: "+", updated: "~", deleted: "×" };

let context;
let parts = {};
let list;
let state = null; // what is shown: the answers, the window, the rows
let turn = 0;
let mode = "fields";
let observer;
let typing;
let dimming;
let asking; // an AbortController of the questions about the window
let chosen = ""; // the change whose difference is shown

export const shownWindow = () => state?.window;

export function enter(view, given) {
  context = given;
  const field = (name, control) => element("label", { class: "field" }, element("span", {}, name), control);
  parts = {
    ns: element("select", { id: "timeline-ns" }), since: element("select", { id: "timeline-since" }), kind: element("select", { id: "timeline-kind" }),
    by: element("select", { id: "timeline-by" }), op: element("select", { id: "timeline-op" }), find: element("input", { id: "timeline-find", type: "search", placeholder: "name or field", autocomplete: "off", spellcheck: "false" }),
    range: element("span", { class: "mono", id: "timeline-range" }), sum: element("p", { class: "sum", id: "timeline-sum", role: "status" }), notes: element("div", { id: "timeline-notes" }),
    problem: element("p", { class: "problem", role: "alert", id: "timeline-problem", hidden: true }),
    names: element("div", { class: "names", tabindex: "0", role: "region", "aria-label": "Objects, and what happened to each" }), canvas: element("canvas", { "aria-hidden": "true", class: "view" }), space: element("div"), histogram: element("canvas", { "aria-hidden": "true", class: "histogram" }),
    drag: element("div", { class: "drag", hidden: true }),
    list: element("div", { class: "list", tabindex: "-1", role: "region", "aria-label": "Changes, the newest first" }), detail: element("section", { class: "detail", "aria-label": "The chosen change", id: "timeline-detail" }),
  };
  parts.filters = element("details", { class: "filters", open: !matchMedia("(max-width: 46rem)").matches }, element("summary", {}, "filters"),
    element("div", { class: "bar" }, field("kind", parts.kind), field("op", parts.op), field("by", parts.by), field("find", parts.find), button("Copy link", { title: "with absolute times (c)", id: "timeline-copy" }, () => context.copyLink())));
  parts.plot = element("div", { class: "canvasbox" }, parts.histogram, parts.space, parts.drag);
  parts.space.append(parts.canvas);
  parts.lanes = element("div", { class: "lanes", id: "lanes" }, parts.names, parts.plot);
  view.replaceChildren(
    element("div", { class: "bar" }, field("namespace", parts.ns), field("last", parts.since), parts.range,
      element("span", { class: "group" }, button("‹", { "aria-label": "Earlier", title: "Earlier ([)" }, () => shift(-1)), button("›", { "aria-label": "Later", title: "Later (])" }, () => shift(1)), button("Fit", { title: "Zoom to the changes (z)", id: "timeline-fit" }, fit)),
      parts.filters),
    parts.sum, parts.problem, parts.notes, parts.lanes, element("div", { class: "split" }, parts.list, parts.detail),
  );
  list = new VirtualList(parts.list, 46, row, (i) => context.set({ sel: selection(state.rows[i]) }));
  parts.ns.addEventListener("change", () => context.set({ ns: parts.ns.value, sel: undefined, kind: undefined }));
  parts.since.addEventListener("change", () => context.set({ since: parts.since.value, from: undefined, to: undefined, sel: undefined }));
  parts.kind.addEventListener("change", () => context.set({ kind: parts.kind.value, sel: undefined }));
  parts.by.addEventListener("change", () => context.set({ by: parts.by.value, sel: undefined }));
  parts.op.addEventListener("change", () => context.set({ op: parts.op.value, sel: undefined }));
  parts.find.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => context.set({ q: parts.find.value }, true), 250);
  });
  parts.list.addEventListener("scroll", more, { passive: true });
  parts.lanes.addEventListener("scroll", () => requestAnimationFrame(drawView), { passive: true });
  brush();
  observer = new ResizeObserver(() => state && draw());
  observer.observe(parts.plot);
}

export function leave() {
  observer?.disconnect();
  clearTimeout(typing);
  asking?.abort();
  dim("");
  chosen = "";
  state = null;
  turn++;
}

export const learned = () => choices(context.route().query);

function options(select, values, chosen) {
  const key = JSON.stringify(values);
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(...values.map(([value, text]) => element("option", { value }, text)));
  }
  select.value = chosen;
}

function choices(query) {
  const known = context.known();
  const ns = query.get("ns") ?? "";
  const names = known?.namespaces ?? [];
  options(parts.ns, [["", "all"], ...[...new Set([...names, ...(ns ? [ns] : [])])].map((n) => [n, n])], ns);
  const since = isFixed(query) ? "" : query.get("since") ?? "30m";
  const spans = [["5m", "5 min"], ["15m", "15 min"], ["30m", "30 min"], ["1h", "1 h"], ["6h", "6 h"], ["1d", "1 d"], ["7d", "7 d"]];
  if (since && !spans.some(([v]) => v === since)) spans.push([since, since]);
  options(parts.since, isFixed(query) ? [["", "set times"], ...spans] : spans, since);
  const kind = query.get("kind") ?? "";
  options(parts.kind, [["", "all"], ...(known?.resources ?? []).map((r) => [r, r]), ...(kind && !known?.resources.includes(kind) ? [[kind, kind]] : [])], kind);
  const by = query.get("by") ?? "";
  const managers = [...new Set([...Object.keys(state?.lanes?.managers ?? {}), ...(by ? [by] : [])])].sort();
  options(parts.op, [["", "all"], ...ops.map((o) => [o, o])], query.get("op") ?? "");
  options(parts.by, [["", "all"], ...managers.map((m) => [m, m])], by);
  if (document.activeElement !== parts.find) parts.find.value = query.get("q") ?? "";
}

export async function show(r) {
  const { query } = r;
  const key = ["ns", "since", "from", "to", "kind", "all", "q", "op", "by", "cluster"].map((k) => query.get(k)).join("|");
  if (state?.key === key) return fill(query);
  const mine = ++turn;
  asking?.abort();
  const { signal } = (asking = new AbortController());
  choices(query);
  const window = windowOf(query);
  parts.range.textContent = range(...window);
  const asked = { namespace: query.get("ns") ?? "", since: iso(window[0]), until: iso(window[1]), kind: query.get("kind") ?? "", q: query.get("q") ?? "", op: query.get("op") ?? "", manager: query.get("by") ?? "" };
  dim("waiting");
  try {
    const first = await question("timeline", { ...asked, order: "newest", limit: page, hide: query.has("all") ? "" : Object.keys(classes).join() }, signal);
    if (mine !== turn) return;
    parts.problem.hidden = true;
    state = { key, window, asked, lanes: null, changes: first.changes, next: first.next, more: first.more };
    dim("counting");
    fill(query);
    // Lanes count all changes of the window. A bridge with two processors answers one question at a time, so they are asked
    // for behind the rows and the difference.
    let lanes = await question("lanes", { ...asked, buckets }, signal);
    const begins = Date.parse(lanes.begins);
    if (!isFixed(query) && begins - window[0] > (window[1] - window[0]) / 2 && begins < window[1] - 1000) {
      // a young history takes the whole width
      window[0] = begins - (window[1] - begins) * 0.02;
      lanes = await question("lanes", { ...asked, since: iso(window[0]), buckets }, signal);
    }
    if (mine !== turn) return;
    parts.range.textContent = range(...window);
    Object.assign(state, { lanes, laneRows: rowsOf(lanes.lanes), hatches: hatchesOf(holesOf(lanes)), hatchesOf: new Map() });
    choices(query);
    fill(context.route().query);
  } catch (error) {
    if (mine !== turn) return;
    parts.problem.textContent = error.message;
    parts.problem.hidden = false;
  }
  if (mine === turn) dim("");
}

// dim says after a moment that what is shown is old: all of it while "waiting", the lanes while "counting".
function dim(kind) {
  clearTimeout(dimming);
  const view = parts.lanes.parentElement;
  view?.classList.remove("waiting", "counting");
  if (!kind) return;
  dimming = setTimeout(() => {
    view?.classList.add(kind);
    parts.sum.textContent = kind === "counting" ? "counting …" : parts.sum.textContent;
  }, 150);
}

// fill shows what was answered, and the chosen change.
function fill(query) {
  if (!state.rows) state.rows = folded(state.changes);
  const chosen = query.get("sel");
  let i = state.rows.findIndex((c) => selection(c) === chosen);
  if (!chosen && state.rows.length) i = 0;
  parts.list.classList.toggle("dated", state.rows.some((c) => clock(c.time).length > 14));
  list.set(state.rows, i);
  if (chosen && i >= 0) list.select(i);
  if (state.lanes) {
    sum(query);
    if (state.drawnRows !== state.laneRows) draw();
  }
  choose(i < 0 ? fromSelection(chosen) : state.rows[i]);
}

// folded makes one row of a container that fails again and again, and leaves the order of the server.
function folded(changes) {
  const rows = [];
  const failing = new Map();
  for (const c of changes) {
    const key = c.failure ? `${c.resource} ${path(c)}` : "";
    if (key && failing.has(key)) {
      failing.get(key).times++;
      continue;
    }
    const one = { ...c, times: 1 };
    if (key) failing.set(key, one);
    rows.push(one);
  }
  return rows;
}

const selection = (c) => `${c.resource}/${c.namespace ?? ""}/${c.name}@${c.resourceVersion}`;

// fromSelection is a change that the address names and that is in no row: one that is hidden, or older.
function fromSelection(text) {
  const found = /^([^/]+)\/([^/]*)\/(.+)@([^@]+)$/.exec(text ?? "");
  return found && { resource: found[1], namespace: found[2], name: found[3], resourceVersion: found[4] };
}

function sum(query) {
  const { lanes } = state;
  const hidden = Object.entries(lanes.hidden).filter(([, n]) => n);
  const total = hidden.reduce((n, [, m]) => n + m, 0);
  const all = query.has("all");
  const toggle = total ? button(all ? "hide them" : "show", { class: "link", id: "timeline-noise" }, () => context.set({ all: all ? undefined : "1", sel: undefined })) : "";
  parts.sum.replaceChildren(`${plural(lanes.changes, "change")}; ${number(total)} ${all ? "of them noise" : "hidden"}${total ? `: ${hidden.map(([name, n]) => `${number(n)} ${classes[name] ?? name}`).join(", ")}` : ""} `, toggle, lanes.more ? ` ${number(lanes.more)} objects have no lane: choose a kind or a shorter time.` : "");
  const notes = state.hatches.slice(0, 3).map(noteOf);
  if (lanes.horizon && Date.parse(lanes.horizon) > state.window[0]) notes.push(element("p", { class: "soft" }, `Kept from ${moment(lanes.horizon)} on.`));
  if (state.window[0] - Date.parse(state.asked.since) > 1000) notes.push(element("p", { class: "soft" }, `Nothing was watched before ${clock(lanes.begins)}.`));
  if (state.hatches.length > 3) notes.push(element("p", { class: "soft" }, `${number(state.hatches.length - 3)} more such times`));
  if (!lanes.changes) notes.push(nothing(query));
  parts.notes.replaceChildren(...notes);
  parts.notes.hidden = notes.length === 0;
}

function nothing(query) {
  const [ns, known] = [query.get("ns") ?? "", context.known()];
  const near = known?.namespaces?.find((n) => n !== ns && (n.startsWith(ns.slice(0, 3)) || ns.startsWith(n)));
  if (ns && known?.kept && !known.namespaces.includes(ns)) return element("p", {}, `The namespace ${ns} is not known.`, near ? element("span", {}, " ", button(`${near}?`, { class: "link" }, () => context.set({ ns: near }))) : "");
  const before = element("span");
  lastBefore(before);
  return element("p", {}, `No change${ns ? ` in ${ns}` : ""} since ${moment(state.window[0])}${Object.keys(state.lanes.hidden).length ? " but what is hidden" : ""}. `, before);
}

// lastBefore leads to the last change before the window, of the last week.
async function lastBefore(box) {
  const [mine, [from, to]] = [turn, state.window];
  try {
    const { changes } = await question("timeline", { ...state.asked, since: iso(from - 7 * 86400000), until: iso(from), order: "newest", limit: 1, hide: Object.keys(classes).join() });
    if (mine !== turn) return;
    if (!changes.length) return box.replaceChildren("Nor in the week before.");
    const at = Date.parse(changes[0].time);
    box.replaceChildren("The last one before: ", button(`${shortName(changes[0])} ${clock(at)}`, { class: "link" }, () => context.set({ from: iso(at - (to - from) / 2), to: iso(at + (to - from) / 2), since: undefined })));
  } catch { /* the window itself has an answer */ }
}

// --- lanes

function rowsOf(lanes) {
  const rows = [];
  let top = 0;
  for (const lane of lanes) {
    rows.push({ lane, top, height: laneHeight });
    top += laneHeight;
    if (lane.childBuckets?.length) {
      rows.push({ lane, top, height: childHeight, ofChildren: true });
      top += childHeight;
    }
  }
  return rows;
}

function draw() {
  if (!state?.laneRows || parts.plot.clientWidth < 50) return;
  const scale = scaleOf(...state.window, parts.plot.clientWidth, buckets, Date.parse(state.lanes.begins) || undefined);
  state.scale = scale;
  parts.lanes.dataset.from = iso(state.window[0]);
  drawHistogram(parts.histogram, state.lanes.histogram, state.hatches, scale, histogramHeight - 1);
  drawView();
  if (state.drawnRows === state.laneRows) return;
  state.drawnRows = state.laneRows;
  parts.names.replaceChildren(...state.laneRows.map((row) => {
    const { lane } = row;
    if (row.ofChildren) {
      const of = Object.entries(lane.children ?? {}).map(([r, n]) => `${n} ${shortKind(r)}`).join(", ");
      const failing = lane.failures ? element("span", { class: "failing" }, ` ! ${plural(lane.failures, "failure")}`) : "";
      return element("p", { class: "child" }, of, failing);
    }
    const link = element("a", { class: "plain", href: context.addressOf(lane), title: `${lane.resource} ${path(lane)}` }, shortName(lane));
    return element("p", { class: "lane" }, link, element("span", { class: "soft" }, ` ${number(lane.changes)}×`));
  }));
}

// drawView draws the lanes that are in view.
function drawView() {
  if (!state?.scale) return;
  const all = state.laneRows.length ? state.laneRows.at(-1).top + state.laneRows.at(-1).height : 1;
  parts.space.style.height = `${all}px`;
  drawLanes(parts.canvas, state.laneRows, hatchesIn, state.scale, state.point, [parts.lanes.scrollTop, Math.min(all, Math.max(1, parts.lanes.clientHeight - histogramHeight))]);
}

function hatchesIn(resources) {
  const key = resources.join();
  if (!state.hatchesOf.has(key)) state.hatchesOf.set(key, hatchesOf(holesOf(state.lanes), resources));
  return state.hatchesOf.get(key);
}

// brush zooms to what is dragged, and chooses what is clicked.
function brush() {
  let from = null;
  const at = (event) => event.clientX - parts.plot.getBoundingClientRect().left;
  parts.plot.addEventListener("pointerdown", (event) => {
    from = at(event);
    parts.plot.setPointerCapture(event.pointerId);
  });
  parts.plot.addEventListener("pointermove", (event) => {
    if (from === null || Math.abs(at(event) - from) < 5) return;
    parts.drag.hidden = false;
    parts.drag.style.left = `${Math.min(from, at(event))}px`;
    parts.drag.style.width = `${Math.abs(at(event) - from)}px`;
  });
  parts.plot.addEventListener("pointerup", (event) => {
    const [start, end] = [from, at(event)];
    from = null;
    parts.drag.hidden = true;
    if (start === null || !state?.scale) return;
    if (Math.abs(end - start) > 8) {
      const [a, b] = [state.scale.time(Math.min(start, end)), state.scale.time(Math.max(start, end))];
      return context.set({ from: iso(a), to: iso(b), since: undefined, sel: undefined });
    }
    const y = event.clientY - parts.canvas.getBoundingClientRect().top + parts.lanes.scrollTop;
    const row = state.laneRows.find((r) => y >= r.top && y < r.top + r.height);
    const point = row && !row.ofChildren && nearest(row.lane, end, state.scale);
    if (point) context.set({ sel: selection({ ...row.lane, resourceVersion: point[2] }) });
  });
}

function shift(steps) {
  const [from, to] = state?.window ?? windowOf(context.route().query);
  const by = Math.min(((to - from) / 2) * steps, Date.now() - to); // the bridge does not answer of the future
  context.set({ from: iso(from + by), to: iso(to + by), since: undefined, sel: undefined });
}

function zoom(factor) {
  const [from, to] = state?.window ?? windowOf(context.route().query);
  const middle = state?.point?.time ?? (from + to) / 2;
  context.set({ from: iso(middle - (middle - from) * factor), to: iso(Math.min(middle + (to - middle) * factor, Date.now())), since: undefined });
}

// fit zooms to the time from the first change that is counted to the last one.
function fit() {
  if (!state?.lanes) return;
  const [from, to] = state.window;
  const counted = state.lanes.histogram.map((n, i) => (n ? i : -1)).filter((i) => i >= 0);
  if (!counted.length) return;
  const part = (to - from) / buckets;
  const [a, b] = [from + counted[0] * part, from + (counted.at(-1) + 1) * part];
  const pad = Math.max((b - a) * 0.03, 2000);
  context.set({ from: iso(a - pad), to: iso(Math.min(b + pad, Date.now())), since: undefined });
}

// --- rows

function row(c) {
  const ns = context.route().query.get("ns") ? "" : element("span", { class: "soft" }, ` ${c.namespace ?? ""}`);
  return [
    element("span", { class: "mono time" }, when(c, clock)), element("span", { class: `sign ${c.failure ? "failing" : c.operation}`, "aria-hidden": "true" }, c.failure ? "!" : marks[c.operation] ?? "?"),
    element("span", { class: "what", title: `${c.resource} ${path(c)}` }, element("b", {}, shortName(c)), ns), element("span", { class: "change" }, c.failure ? failure(c) : short(c), c.times > 1 ? element("span", { class: "failing" }, ` ×${number(c.times)}`) : ""),
    element("span", { class: "by" }, who(c), c.notBefore ? element("span", { class: "late-note" }, " · observed late") : ""),
  ];
}

// failure names the container that fails, as a change of a status names it.
function failure(c) {
  const of = (c.changed ?? []).map((f) => /Statuses\[([^\]]+)\]/.exec(f.field)?.[1]).find(Boolean);
  const why = (c.changed ?? []).find((f) => f.field.endsWith("waiting.reason") || f.field.endsWith("terminated.reason"))?.new;
  return `container ${of ?? ""} fails${why ? `: ${why}` : ""}`;
}

async function more() {
  if (!state?.more || state.asking || parts.list.scrollTop + parts.list.clientHeight < parts.list.scrollHeight - 400) return;
  state.asking = true;
  const mine = turn;
  try {
    const query = context.route().query;
    const next = await question("timeline", { ...state.asked, order: "newest", limit: page, before: state.next, hide: query.has("all") ? "" : Object.keys(classes).join() });
    if (mine !== turn) return;
    state.changes.push(...next.changes);
    Object.assign(state, { more: next.more, next: next.next, rows: undefined });
    const top = parts.list.scrollTop;
    fill(query);
    parts.list.scrollTop = top;
  } catch (error) {
    if (mine === turn) parts.problem.textContent = error.message;
  } finally {
    if (state) state.asking = false;
  }
}

// choose shows what a change changed.
async function choose(c) {
  if (!c) {
    chosen = "";
    return parts.detail.replaceChildren(element("p", { class: "soft" }, "Choose a change."));
  }
  const lane = state.lanes?.lanes.find((l) => l.resource === c.resource && l.name === c.name && (l.namespace ?? "") === (c.namespace ?? ""));
  const time = c.time ? Date.parse(c.time) : lane?.points?.find((p) => p[2] === c.resourceVersion)?.[0];
  state.point = time ? { lane, time } : null;
  draw();
  const key = `${selection(c)} ${mode}`;
  if (key === chosen) return;
  chosen = key;
  const body = element("div", { class: "difference" });
  const title = element("div", { class: "row" }, element("h2", {}, `${shortName(c)} ${c.operation ?? ""} ${c.time ? when(c) : ""}`),
    element("span", { class: "end" }, element("a", { href: context.addressOf(c, { v: c.resourceVersion }) }, "all versions"), button("copy link", { class: "link" }, () => context.copyLink())));
  const about = c.time ? element("p", {}, who(c), c.notBefore ? ` · made between ${moment(c.notBefore)} and ${moment(c.time)}` : "", c.owner ? ` · of ${c.owner}` : "") : "";
  parts.detail.replaceChildren(title, about, body);
  context.say(`${shortName(c)} ${c.operation ?? ""}: ${c.changed ? short(c) : ""}`);
  try {
    const answer = await difference(body, c, c.resourceVersion, { mode, onMode: (m) => { mode = m; choose(c); } });
    if (key === chosen && !c.time) choose({ ...answer, ...answer.to });
  } catch (error) {
    if (key === chosen) body.replaceChildren(element("p", { class: "problem" }, error.message));
  }
}

export function key(k) {
  if (!state) return false;
  const step = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 }[k];
  if (step && state.rows.length) {
    const next = Math.min(Math.max(list.chosen + step, 0), state.rows.length - 1);
    context.set({ sel: selection(state.rows[next]) }, true);
    list.select(next, true);
    return true;
  }
  switch (k) {
    case "[": return shift(-1), true;
    case "]": return shift(1), true;
    case "+": return zoom(0.5), true;
    case "-": return zoom(2), true;
    case "z": return fit(), true;
    case "n": return context.set({ from: undefined, to: undefined, since: "30m", sel: undefined }), true;
    case "y":
      mode = mode === "fields" ? "yaml" : "fields";
      if (list.chosen >= 0) choose(state.rows[list.chosen]);
      return true;
  }
  return false;
}
