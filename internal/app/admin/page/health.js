// Health: is the bridge well, how far behind is each sink, what was lost.

import { addressTo, ask, button, bytes, duration, element, number, plural, question, show } from "./base.js";
import { clock, moment, range, span } from "./time.js";

const windows = { "15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h" };
// The states of a sink, as /status names them.
const states = { connected: "good", blocked: "bad", unavailable: "bad", paused: "warn", "not open": "warn" };
// Colours of series are not their only difference: each line has a name at its end, and a dash.
const dashes = ["", "7 4", "2 3", "9 3 2 3"];

let context;
let parts = {};
let timer;
let observer;
let samples = null;
let asked = "15m";
let onlyFailing = false;
let wanted = "";
let pointed = -1; // the sample that the pointer is at, of all plots
let pointers = []; // what shows that sample, of each plot

export function enter(view, given) {
  context = given;
  parts = {
    reasons: element("section", { class: "notice warn", "aria-labelledby": "reasons-title", hidden: true, id: "reasons" }),
    refused: element("section", { class: "notice warn", "aria-labelledby": "refused-title", hidden: true, id: "refused" }),
    sinks: element("section", { "aria-labelledby": "sinks-title", id: "sinks" }),
    plots: element("section", { "aria-labelledby": "plots-title", id: "plots" }),
    losses: element("section", { "aria-labelledby": "losses-title", id: "losses" }),
    reading: element("section", { "aria-labelledby": "reading-title", id: "reading" }),
  };
  view.replaceChildren(...Object.values(parts));
  buildSinks();
  buildReading();
  timer = setInterval(look, 5000);
  observer = new ResizeObserver(() => samples && drawPlots());
  observer.observe(view);
}

export function leave() {
  clearInterval(timer);
  observer.disconnect();
  samples = null;
}

export function show_(r) { asked = windows[r.query.get("w")] ? r.query.get("w") : "15m"; look(); losses(); }
export { show_ as show };

export const learned = () => losses();

export function status(s) {
  drawReasons(s);
  drawRefused(s.reload);
  drawSinks(s.sinks ?? []);
  drawReading(s);
}

// --- what is wrong

const docs = "https://github.com/kubebridge/bridge/blob/main/docs/runbooks.md";

function drawReasons(s) {
  const box = parts.reasons;
  box.hidden = s.ready;
  if (s.ready) return;
  const shown = s.reasons.slice(0, 20);
  const key = shown.map((r) => r.what + r.message + Math.floor((Date.now() - Date.parse(r.since ?? 0)) / 1000)).join();
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  box.replaceChildren(
    element("div", { class: "row" }, element("h2", { id: "reasons-title" }, "Not ready"), element("a", { class: "end", href: docs, rel: "noreferrer" }, "runbooks")),
    element("ul", {}, ...shown.map((r) => element("li", {}, element("b", {}, r.what), `: ${r.message}`, r.since ? `, since ${moment(r.since)} (${duration((Date.now() - Date.parse(r.since)) / 1000)})` : "")), s.reasons.length > shown.length ? element("li", {}, `and ${number(s.reasons.length - shown.length)} more`) : null),
  );
}

// drawRefused says that the file has another configuration than the one that runs.
function drawRefused(reload) {
  const box = parts.refused;
  box.hidden = !reload?.refusedSince;
  const key = JSON.stringify(reload ?? "");
  if (box.hidden || box.dataset.key === key) return;
  box.dataset.key = key;
  const since = `since ${moment(reload.refusedSince)}`;
  box.replaceChildren(
    element("h2", { id: "refused-title" }, reload.result === "refused" ? `The configuration file is refused ${since}` : `The configuration file can't be applied ${since}`),
    element("p", {}, "The bridge runs with the one of before. It reads the file again when it changes."),
    element("ul", {}, ...(reload.problems ?? []).map((problem) => element("li", {}, problem))),
  );
}

// --- sinks

function buildSinks() {
  const columns = [["Sink"], ["State"], ["Lag", "n"], ["Lag, 15 min"], ["Events/s", "n"], ["Backlog", "n"], ["Retries", "n"], ["Dead letters", "n"], ["Last error"]];
  parts.sinks.replaceChildren(
    element("div", { class: "head" }, element("h2", { id: "sinks-title" }, "Sinks"), element("p", { class: "sum", id: "sinks-sum" })),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of sinks" }, element("table", { class: "cards" }, element("caption", { class: "hide" }, "Where events go, and how far behind each sink is"),
      element("thead", {}, element("tr", {}, ...columns.map(([name, kind]) => element("th", { scope: "col", class: kind }, name)))), element("tbody", { id: "sinks-rows" }))),
  );
}

const ago = (time) => duration(Math.max(0, Date.now() - Date.parse(time)) / 1000);
const rates = new Map();

// rate is how many events per second a sink has published over the last seconds.
function rate(sink) {
  const list = rates.get(sink.name) ?? [];
  if (list.length && list.at(-1).n > sink.published) list.length = 0; // it was started again
  list.push({ at: performance.now(), n: sink.published });
  while (list.length > 6) list.shift();
  rates.set(sink.name, list);
  const [first, last] = [list[0], list.at(-1)];
  return last.at > first.at ? ((last.n - first.n) * 1000) / (last.at - first.at) : 0;
}

function drawSinks(sinks) {
  const body = document.getElementById("sinks-rows");
  let all = 0;
  const ordered = [...sinks].sort((a, b) => (a.state === "connected") - (b.state === "connected") || b.lagSeconds - a.lagSeconds);
  ordered.forEach((s, i) => {
    const now = rate(s);
    all += now;
    let row = [...body.rows].find((r) => r.dataset.key === s.name);
    if (!row) {
      row = element("tr", { "data-key": s.name }, element("th", { scope: "row" }, s.name), ...["State", "Lag", "Trend", "Events/s", "Backlog", "Retries", "Dead letters", "Last error"].map((name) => element("td", { "data-name": name })));
      for (const n of [2, 4, 5, 6, 7]) row.cells[n].className = "n";
    }
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] ?? null);
    const badge = row.cells[1].firstElementChild ?? row.cells[1].appendChild(element("span"));
    show(badge, s.state, `badge ${s.lastError && s.state === "not open" ? "bad" : states[s.state] ?? "warn"}`);
    show(row.cells[2], duration(s.lagSeconds), `n${s.lagSeconds > 30 ? " late" : ""}`);
    show(row.cells[4], rateText(now));
    show(row.cells[5], s.pendingChanges ? `${number(s.pendingChanges)}${s.queuedBytes ? `, ${bytes(s.queuedBytes)}` : ""}` : "0");
    show(row.cells[6], number(s.retries));
    show(row.cells[7], number(s.deadLetters));
    const error = s.blocked || (s.lastError ? `${s.lastError} (${ago(s.lastErrorAt)} ago${s.lastErrorOver ? `, over for ${ago(s.lastErrorOver)}` : ""})` : "");
    const shown = row.cells[8].firstElementChild ?? row.cells[8].appendChild(element("span"));
    show(shown, error, error ? `long${s.lastErrorOver ? " past" : ""}` : "");
    shown.title = error;
  });
  for (const row of [...body.rows]) if (!sinks.some((s) => s.name === row.dataset.key)) row.remove();
  show(document.getElementById("sinks-sum"), `${plural(sinks.length, "sink")}, ${rateText(all)} events/s`);
  drawSparks();
}

const svg = (name, attributes) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  return e;
};

// pathOf is the line of values. null is where no sample was taken: a process takes them from its start on, the more seldom
// the fewer people look.
function pathOf(values, x, y) {
  const points = values.flatMap((v, i) => (v === null ? [] : [`${x(i).toFixed(1)} ${y(v).toFixed(1)}`]));
  return points.length ? `M${points.join("L")}l.1 0` : "";
}

const seriesOf = (name) => (samples?.series ?? []).filter((s) => s.name === name);
const lagName = "bridge_informer_oldest_seconds";

function drawSparks() {
  if (!samples) return;
  for (const row of document.getElementById("sinks-rows").rows) {
    const of = seriesOf(lagName).find((s) => s.labels.sink === row.dataset.key);
    const key = `${samples.since} ${of?.values.length}`;
    if (row.cells[3].dataset.key === key) continue;
    row.cells[3].dataset.key = key;
    if (!of) continue;
    const top = Math.max(1, ...of.values.map((v) => v ?? 0));
    const picture = svg("svg", { class: "spark", width: 130, height: 22, viewBox: "0 0 130 22", role: "img", "aria-label": `Lag of ${row.dataset.key}: at most ${duration(top === 1 ? Math.max(0, ...of.values.map((v) => v ?? 0)) : top)} in the time that is shown` });
    picture.append(svg("path", { d: pathOf(of.values, (i) => (i / (of.values.length - 1)) * 128 + 1, (v) => 20 - (v / top) * 18) }));
    row.cells[3].replaceChildren(picture);
  }
}

// --- plots

async function look() {
  try {
    const response = await ask(`samples?window=${asked}`);
    if (!response?.ok) return;
    samples = lived(await response.json());
  } catch { return; } // the header says that there is no answer
  if (!parts.sinks.isConnected) return; // another view is shown
  show(parts.sinks.querySelectorAll("th")[3], `Lag, ${windows[asked]}`);
  drawSparks();
  drawPlots();
}

// lived leaves out the time before the first sample, where that is most of it: a new bridge has a trend too.
function lived(s) {
  const n = s.series[0]?.values.length ?? 0;
  const first = Math.min(...s.series.map((one) => one.values.findIndex((v) => v !== null)).filter((i) => i >= 0)) - 1;
  if (!(first > n / 2 && first < n - 2)) return s;
  return { ...s, since: new Date(Date.parse(s.since) + first * s.step * 1000).toISOString(), series: s.series.map((one) => ({ ...one, values: one.values.slice(first) })) };
}

function drawPlots() {
  const choices = Object.entries(windows).map(([w, name]) => button(name, { "aria-pressed": String(w === asked) }, () => context.set({ w })));
  const focused = [...parts.plots.querySelectorAll("button")].indexOf(document.activeElement);
  const changes = seriesOf("bridge_informer_changes_total").filter((s) => ["added", "updated", "deleted"].includes(s.labels.op)).map((s) => ({ name: s.labels.op, values: perSecond(s.values) }));
  const columns = Math.max(1, Math.floor((parts.plots.clientWidth - 16) / 352));
  const width = Math.max(240, Math.min((parts.plots.clientWidth - 32 - 16 * (Math.min(columns, 3) - 1)) / Math.min(columns, 3), 900));
  pointers = [];
  const plot = (title, metric, series, text) => picture(width, title, metric, series, text);
  parts.plots.replaceChildren(
    element("div", { class: "head" }, element("h2", { id: "plots-title" }, "Trend"), element("p", { class: "modes", role: "group", "aria-label": "Window of the plots" }, ...choices)),
    element("div", { class: "plots" },
      plot("Lag, by sink", lagName, seriesOf(lagName).map((s) => ({ name: s.labels.sink, values: s.values })), duration),
      plot("Events per second, by sink", "bridge_publisher_published_total", seriesOf("bridge_publisher_published_total").map((s) => ({ name: s.labels.sink, values: perSecond(s.values) })), rateText),
      plot("Changes per second, by operation", "bridge_informer_changes_total", changes, rateText)),
  );
  if (focused >= 0) parts.plots.querySelectorAll("button")[focused]?.focus();
  point(pointed);
}

// point shows the values of one sample in all plots, or the newest ones.
function point(i) {
  pointed = i;
  for (const p of pointers) p(i);
}

const rateText = (v) => (v === 0 ? "0" : v < 10 ? v.toFixed(1) : number(Math.round(v)));

// perSecond is the rate of a counter; a restart begins at null.
function perSecond(values) {
  let last = -1;
  return values.map((v, i) => {
    if (v === null) return null;
    const from = last;
    last = i;
    return from < 0 || values[from] > v ? null : (v - values[from]) / ((i - from) * samples.step);
  });
}

// picture is a plot of a width in pixels; its legend has the last values as text.
function picture(width, title, metric, series, text) {
  const [height, left, bottom] = [126, 2, 18];
  const n = series[0]?.values.length ?? 2;
  const top = Math.max(1e-9, ...series.flatMap((s) => s.values.map((v) => v ?? 0)));
  const x = (i) => left + (i / (n - 1)) * (width - left - 4);
  const y = (v) => height - bottom - (v / (top || 1)) * (height - bottom - 18);
  const drawing = svg("svg", { class: "plot", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const label = (content, at, kind = "") => {
    const e = svg("text", { ...at, class: kind });
    e.textContent = content;
    drawing.append(e);
  };
  drawing.append(svg("line", { x1: left, x2: width, y1: y(0), y2: y(0), class: "axisline" }), svg("line", { x1: left, x2: width, y1: y(top), y2: y(top), class: "axisline" }));
  // a process has samples from its start on
  const lived = Array.from({ length: n }, (_, i) => series.some((s) => s.values[i] !== null));
  const first = lived.includes(true) ? lived.indexOf(true) : n - 1;
  if (first > 0) {
    drawing.append(svg("rect", { x: left, y: 18, width: x(first) - left, height: height - bottom - 18, class: "notrunning" }));
    label("no samples before the start", { x: left + 6, y: 32 }, "axistext");
  }
  series.forEach((s, i) => drawing.append(svg("path", { d: pathOf(s.values, x, y), class: `line s${i % 6}`, "stroke-dasharray": dashes[i % 4] })));
  const since = samples ? Date.parse(samples.since) : 0;
  label(text(top < 1e-8 ? 0 : top), { x: left, y: 12 }, "axistext");
  label(clock(since), { x: left, y: height - 4 }, "axistext");
  label(clock(since + (n - 1) * (samples?.step ?? 0) * 1000), { x: width - 2, y: height - 4, "text-anchor": "end" }, "axistext");
  const last = (s) => [...s.values].reverse().find((v) => v !== null) ?? 0;
  const values = series.map((s, i) => {
    const sample = svg("svg", { width: 26, height: 8, "aria-hidden": "true" });
    sample.append(svg("path", { d: "M0 4L26 4", class: `line s${i % 6}`, "stroke-dasharray": dashes[i % 4] }));
    return element("li", {}, sample, element("span"));
  });
  const at = element("li", { class: "soft", hidden: true });
  const cursor = svg("line", { y1: 18, y2: height - bottom, class: "cursor" });
  drawing.append(cursor);
  pointers.push((i) => {
    const isAt = i >= 0 && i < n;
    cursor.setAttribute("visibility", isAt ? "visible" : "hidden");
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(isAt ? i : 0));
    at.hidden = !isAt;
    show(at, isAt ? clock(since + i * samples.step * 1000) : "");
    series.forEach((s, k) => show(values[k].lastChild, ` ${s.name} ${!isAt ? text(last(s)) : s.values[i] === null ? "–" : text(s.values[i])}`));
  });
  drawing.addEventListener("pointermove", (event) => point(Math.round(((event.clientX - drawing.getBoundingClientRect().left - left) / (width - left - 4)) * (n - 1))));
  drawing.addEventListener("pointerleave", () => point(-1));
  const legend = element("ul", { class: "legend" }, ...values, at);
  return element("figure", {}, element("figcaption", {}, title, element("code", {}, metric)), drawing, legend);
}

// --- losses

const shownLosses = 5;
const whys = { expired: "the watch had expired", dropped: "events were dropped", ended: "the history has nothing newer" };
const advice = "informers:\n  - name: all\n    resources: [\"*\"]\n    sinks: [{name: stream}, {name: history}]\nsinks:\n  - name: history\n    history: {}";

async function losses() {
  const box = parts.losses;
  const head = element("h2", { id: "losses-title" }, "Lost or unsure in 7 days");
  try {
    if (!context.known() || (!context.known().kept && isNew(context.status()))) {
      return box.replaceChildren(element("div", { class: "head" }, head), element("p", { class: "help" }, "The history is not open yet."));
    }
    if (!context.known().kept) {
      return box.replaceChildren(element("div", { class: "head" }, head), element("p", { class: "help" }, "This bridge keeps no history. Add a sink to have one, and its name to the sinks of each informer that names any: "), element("pre", { class: "hint", tabindex: "0" }, advice));
    }
    const answer = await question("losses", { since: "7d ago" });
    const end = answer.ends ? [{ since: answer.ends, until: new Date().toISOString(), reason: "ended", resources: 0 }] : [];
    const rows = [...end, ...answer.losses.slice(0, shownLosses)].map((l) => {
      const [from, to] = [Date.parse(l.since), l.until ? Date.parse(l.until) : Date.parse(l.since)];
      const pad = Math.max(60000, to - from);
      const of = l.resources > 1 ? plural(l.resources, "resource") : l.resource || "all";
      const what = l.reason === "unwatched" ? element("span", {}, element("span", { class: "badge" }, "not watched"), ` ${of}: complete, but times are the latest possible`) : element("span", {}, element("span", { class: "badge bad" }, "may be missing"), ` ${of}: ${whys[l.reason] ?? l.what}`);
      return element("li", {}, element("span", { class: "mono" }, to - from > 999 ? range(from, to, moment) : moment(from)), what, element("a", { href: addressTo("timeline", { from: new Date(from - pad).toISOString(), to: new Date(Math.min(to + pad, Date.now())).toISOString() }) }, "timeline"));
    });
    const letters = (context.status()?.sinks ?? []).filter((s) => s.deadLetters).map((s) => element("li", {}, element("span", { class: "mono" }, "since the start"), element("span", {}, element("span", { class: "badge bad" }, "dead letters"), ` sink ${s.name}: ${plural(s.deadLetters, "event")}`), element("code", {}, `bridge deadletters list ${s.name}`)));
    const none = element("p", { class: "help" }, `Nothing${answer.horizon ? ` since ${moment(answer.horizon)}` : ""}.`);
    box.replaceChildren(element("div", { class: "head" }, head), letters.length + rows.length ? element("ul", { class: "losses" }, ...letters, ...rows) : none, answer.losses.length > shownLosses ? element("p", { class: "help" }, `${number(answer.losses.length - shownLosses + (answer.more ?? 0))} earlier ones`) : "");
  } catch (error) {
    box.replaceChildren(element("div", { class: "head" }, head), element("p", { class: "problem" }, error.message));
  }
}

// isNew says whether a bridge has just started: it opens its history later than this server.
const isNew = (s) => s && (s.starting || Date.now() - Date.parse(s.started) < 10000);

// --- informers: one line, unless one of them fails

const fails = (u) => !u.synced || !!u.lastError || Object.values(u.dropped ?? {}).some((n) => n > 0);

function buildReading() {
  const filter = element("input", { id: "informers-filter", type: "search", placeholder: "name or resource", autocomplete: "off", spellcheck: "false" });
  const only = element("input", { id: "informers-failing", type: "checkbox" });
  for (const e of [filter, only]) e.addEventListener("input", () => {
    [wanted, onlyFailing] = [filter.value.trim().toLowerCase(), only.checked];
    if (context.status()) drawReading(context.status());
  });
  const columns = [["Informer"], ["Resource"], ["Phase"], ["Objects", "n"], ["Version", "n"], ["Lag", "n"], ["Gaps", "n"], ["Last error"]];
  const table = element("details", { id: "informers" }, element("summary", {}, "all of them"),
    element("p", { class: "row" }, element("label", { class: "field" }, element("span", {}, "Show"), filter), element("label", { class: "check" }, only, " only those that fail")),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of informers" }, element("table", {}, element("caption", { class: "hide" }, "What is watched, and how far it is"), element("thead", {}, element("tr", {}, ...columns.map(([name, kind]) => element("th", { scope: "col", class: kind }, name)))), element("tbody", { id: "informers-rows" }))));
  parts.reading.replaceChildren(element("div", { class: "head" }, element("h2", { id: "reading-title" }, "Reading"), element("p", { class: "sum", id: "informers-sum" }), element("p", { class: "sum end", id: "disk" })), table);
  table.addEventListener("toggle", () => { if (context.status()) drawReading(context.status()); });
}

function drawReading(s) {
  const informers = s.informers ?? [];
  const bad = informers.filter(fails);
  const objects = informers.reduce((sum, u) => sum + (u.objects ?? 0), 0);
  show(document.getElementById("informers-sum"), `${plural(informers.length, "resource")}, ${plural(objects, "object")}, ${bad.length ? `${number(bad.length)} failing: ${bad.slice(0, 3).map((u) => u.resource).join(", ")}` : "all in sync"}`, bad.length ? "sum problem" : "sum");
  if (s.state) {
    const where = s.state.dir ? `State directory ${s.state.dir}` : "State in memory";
    show(document.getElementById("disk"), `${where}: ${bytes(s.state.bytes)}${s.state.commitError ? `; commits fail: ${s.state.commitError}` : ""}`);
  }
  const table = document.getElementById("informers");
  if (bad.length && !table.dataset.opened) table.open = table.dataset.opened = true;
  if (!table.open) return;
  const shown = informers.filter((u) => (!onlyFailing || fails(u)) && `${u.informer} ${u.resource} ${u.namespace ?? ""}`.toLowerCase().includes(wanted));
  const body = document.getElementById("informers-rows");
  while (body.rows.length > shown.length) body.lastChild.remove();
  shown.forEach((u, i) => {
    const row = body.rows[i] ?? body.insertRow();
    const gaps = Object.values(u.gaps ?? {}).reduce((sum, n) => sum + n, 0);
    [[u.informer], [u.namespace ? `${u.resource} in ${u.namespace}` : u.resource], [u.phase, u.lastError ? "bad-text" : ""], [u.objects === undefined ? "–" : number(u.objects), "n"], [u.version || "–", "n mono"], [duration(Math.max(0, ...Object.values(u.oldestSeconds ?? {}))), "n"], [number(gaps), "n"], [u.lastError ?? "", u.lastError ? "long" : ""]].forEach(([text, kind = ""], n) => show(row.cells[n] ?? row.insertCell(), text, kind));
  });
}

export function key(k) {
  const names = Object.keys(windows);
  const i = names.indexOf(asked);
  const next = { "+": i - 1, "-": i + 1 }[k];
  if (next === undefined || !names[next] || !span(asked)) return false;
  context.set({ w: names[next] });
  return true;
}
