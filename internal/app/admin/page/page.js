// The status page. It only reads: /status each second, /tail while events are shown, /object and, in history.js,
// /history when asked. Text goes into the page as text, never as markup.

const $ = (id) => document.getElementById(id);
const every = 1000; // ms between two looks
const patience = 5000; // ms after which what is shown is old
const keptEvents = 300;

// element makes one: element("td", {class: "n"}, "3", otherElement).
function element(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

const number = (n) => Number(n ?? 0).toLocaleString("en-US");

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1023.95 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 ? n : n.toFixed(1)} ${units[i]}`;
}

function duration(seconds) {
  if (seconds < 0.0005) return "0";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d`;
}

// clock is a time of day. All times of the page are UTC, as everybody who reads the page has them, and say so.
const clock = (time) => `${new Date(time).toISOString().slice(11, 23)}Z`;

// show puts text and a class into an element, only when they changed: so that a screen reader does not read it twice.
function show(e, text, kind) {
  if (e.textContent !== text) e.textContent = text;
  if (kind !== undefined && e.className !== kind) e.className = kind;
}

// --- what shows the cluster needs a token, unless the browser runs as the bridge's own user.

// The token is kept for this tab only, until it is closed, and for as long as the bridge takes it.
const kept = "bridge-token";
const token = { get: () => sessionStorage.getItem(kept), set: (value) => sessionStorage.setItem(kept, value), drop: () => sessionStorage.removeItem(kept) };

// ask returns null when the bridge refuses to answer; the page then shows why.
async function ask(path, signal) {
  const headers = { Accept: "application/json" };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const response = await fetch(path, { headers, cache: "no-store", credentials: "omit", signal });
  if (![401, 403, 429].includes(response.status)) {
    $("access").hidden = true;
    return response;
  }
  refused(response.status, await said(response));
  return null;
}

async function said(response) {
  const text = (await response.text()).trim();
  try { return JSON.parse(text).error ?? text; } catch { return text; }
}

function refused(code, why) {
  if (code === 401) token.drop();
  answered = 0; // what is shown stays, and is not said to be live
  $("gone").hidden = true;
  show($("fresh"), "");
  show($("state"), "refused", "badge warn");
  $("access").hidden = false;
  show($("access-why"), why);
  $("access-form").hidden = code !== 401;
}

$("access-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set($("access-token").value);
  $("access-token").value = "";
  $("access").hidden = true;
  document.dispatchEvent(new Event("admitted"));
  look();
  clearTimeout(nextPoll);
  poll();
});

// --- status

let answered = 0; // when the bridge last answered, by performance.now
let rates = new Map(); // by sink: the last samples of what it has published
let nextPoll; // a timer, while no answer is awaited

async function poll() {
  try {
    const status = await ask("/status", AbortSignal.timeout(patience));
    if (!status) return; // a token starts it again
    const s = await status.json();
    answered = performance.now();
    draw(s);
  } catch (error) {
    if (answered === 0) show($("state"), "no answer", "badge bad");
  }
  nextPoll = setTimeout(poll, document.hidden ? 5 * every : every);
}

// age shows how old what is shown is, also when no answer comes any more.
function age() {
  if (answered === 0) return;
  const old = performance.now() - answered;
  show($("fresh"), old < patience ? "live" : `${duration(old / 1000)} old`);
  const gone = old >= patience && !document.hidden;
  document.body.classList.toggle("stale", gone);
  if (gone) {
    show($("state"), "no answer", "badge bad");
    if ($("gone").hidden) show($("gone"), `The bridge does not answer since ${clock(Date.now() - old).slice(0, 8)}Z: it has ended, or can't be reached. What is below is from then.`);
  }
  $("gone").hidden = !gone;
}

function draw(s) {
  show($("cluster"), s.cluster ?? "");
  show($("version"), s.version ? `bridge ${s.version}, runs for ${duration((Date.now() - Date.parse(s.started)) / 1000)}` : "");
  document.title = `${s.ready ? "" : "not ready: "}bridge ${s.cluster ?? ""}`.trim();
  show($("state"), s.starting ? "starting" : s.ready ? "ready" : "not ready", `badge ${s.ready ? "good" : "warn"}`);
  drawReasons(s);
  const informers = s.informers ?? [];
  drawInformers(informers);
  drawSinks(s.sinks ?? []);
  drawResources(informers);
  if (s.state) {
    const where = s.state.dir ? `State directory ${s.state.dir}` : "State in memory";
    show($("disk"), `${where}: ${bytes(s.state.bytes)}${s.state.commitError ? `; commits fail: ${s.state.commitError}` : ""}`, s.state.commitError ? "sum problem" : "sum");
  }
}

function drawReasons(ready) {
  $("reasons").hidden = ready.ready;
  const lines = ready.reasons.map((r) => `${r.what}: ${r.message}${r.since ? ` (for ${duration((Date.now() - Date.parse(r.since)) / 1000)})` : ""}`);
  const list = $("reasons-list");
  const shown = lines.slice(0, 20);
  if (lines.length > shown.length) shown.push(`and ${number(lines.length - shown.length)} more`);
  while (list.children.length > shown.length) list.lastChild.remove();
  shown.forEach((line, i) => show(list.children[i] ?? list.appendChild(element("li")), line));
}

// rows keeps one row for each key, in the order given, and fills its cells. Rows stay where they can, so that focus and selection do.
function rows(body, items, fill) {
  const there = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  items.forEach(([key, item], i) => {
    let row = there.get(key);
    if (!row) {
      row = element("tr", { "data-key": key });
      there.set(key, row);
    }
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] ?? null);
    fill(row, item);
  });
  while (body.rows.length > items.length) body.lastChild.remove();
}

// cells fills a row with texts, or with an element for which there is a place once.
function cells(row, list) {
  list.forEach(([text, kind = ""], i) => {
    const cell = row.cells[i] ?? row.insertCell();
    if (typeof text === "string") show(cell, text, kind);
    else text(cell);
  });
}

const badge = (text, kind) => (cell) => {
  const e = cell.firstElementChild ?? cell.appendChild(element("span"));
  show(e, text, `badge ${kind}`);
};

function worst(numbers) {
  return Math.max(0, ...Object.values(numbers ?? {}));
}

function trouble(u) {
  return !u.synced || !!u.lastError || worst(u.dropped) > 0;
}

function drawInformers(informers) {
  const wanted = $("informers-filter").value.trim().toLowerCase();
  const only = $("informers-trouble").checked;
  const shown = informers.filter((u) => (!only || trouble(u)) && `${u.informer} ${u.resource} ${u.namespace ?? ""}`.toLowerCase().includes(wanted));
  rows($("informers-rows"), shown.map((u) => [`${u.informer}/${u.resource}/${u.namespace ?? ""}`, u]), (row, u) => {
    const gaps = Object.values(u.gaps ?? {}).reduce((sum, n) => sum + n, 0);
    const waiting = u.queuedBytes + u.logBytes;
    cells(row, [
      [u.informer], [u.namespace ? `${u.resource} in ${u.namespace}` : u.resource],
      [badge(u.phase, u.lastError ? "bad" : u.synced ? "good" : "warn")],
      [u.objects === undefined ? "–" : number(u.objects), "n"], [u.version || "–", "n mono"],
      [duration(worst(u.oldestSeconds)), "n"], [u.versionsBehind === undefined ? "–" : number(u.versionsBehind), "n"],
      [`${bytes(waiting)}${u.spoolBytes ? ` + ${bytes(u.spoolBytes)} on disk` : ""}`, "n"],
      [gaps ? number(gaps) : "0", "n"], [u.lastError ?? "", u.lastError ? "long" : ""],
    ]);
  });
  $("informers-empty").hidden = shown.length > 0;
  const objects = informers.reduce((sum, u) => sum + (u.objects ?? 0), 0);
  const bad = informers.filter(trouble).length;
  show($("informers-sum"), `${number(informers.length)} resources, ${number(objects)} objects${bad ? `, ${number(bad)} in trouble` : ""}${shown.length < informers.length ? `; ${number(shown.length)} shown` : ""}`);
}

// rate is how many events per second a sink has published over the last seconds.
function rate(sink) {
  const samples = rates.get(sink.name) ?? [];
  if (samples.length && samples.at(-1).n > sink.published) samples.length = 0; // it was started again
  samples.push({ at: performance.now(), n: sink.published });
  while (samples.length > 6) samples.shift();
  rates.set(sink.name, samples);
  const [first, last] = [samples[0], samples.at(-1)];
  return last.at > first.at ? ((last.n - first.n) * 1000) / (last.at - first.at) : 0;
}

// The states of a sink, as /status names them.
const sinkStates = { connected: "good", blocked: "bad", unavailable: "bad", paused: "warn", "not open": "warn" };

function drawSinks(sinks) {
  let all = 0;
  rows($("sinks-rows"), sinks.map((s) => [s.name, s]), (row, s) => {
    const now = rate(s);
    all += now;
    const error = s.blocked ? s.blocked : s.lastError ? `${s.lastError} (${duration(Math.max(0, Date.now() - Date.parse(s.lastErrorAt)) / 1000)} ago)` : "";
    cells(row, [
      [s.name], [badge(s.state, sinkStates[s.state] ?? "warn")], [now < 10 ? now.toFixed(1) : number(Math.round(now)), "n"], [number(s.published), "n"],
      [meter(s)], [number(s.pendingChanges), "n"], [duration(s.lagSeconds), "n"],
      [number(s.retries), "n"], [number(s.deadLetters), "n"], [error, error ? `long${s.connected && !s.blocked ? " past" : ""}` : ""],
    ]);
  });
  show($("sinks-sum"), `${number(Math.round(all))} events/s`);
}

const meter = (s) => (cell) => {
  const share = Math.max(s.queuedBytes / (s.capacityBytes || 1), s.queuedItems / (s.capacityItems || 1));
  if (!cell.firstElementChild) cell.append(element("meter", { min: 0, max: 1, low: 0.5, high: 0.9, optimum: 0 }), element("span", { class: "soft" }));
  const [bar, text] = cell.children;
  bar.value = Math.min(1, share);
  bar.setAttribute("aria-label", `Queue of ${s.name}: ${Math.round(share * 100)} % full`);
  show(text, ` ${bytes(s.queuedBytes)}`);
};

for (const id of ["informers-filter", "informers-trouble"]) $(id).addEventListener("input", () => { if (last) drawInformers(last); });
let last = null;

function drawResources(informers) {
  last = informers;
  const names = [...new Set(informers.map((u) => u.resource))].sort();
  const select = $("object-resource");
  if (names.join() === [...select.options].map((o) => o.value).join()) return;
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(chosen)) select.value = chosen;
}

// --- events

let looking = null; // an AbortController while the tail is open
let paused = false;
let seen = 0;
let missed = 0;
let said_ = "";

async function look() {
  looking?.abort();
  const mine = (looking = new AbortController());
  show($("events-problem"), "");
  $("events-problem").hidden = true;
  for (let wait = 500; !mine.signal.aborted; wait = Math.min(10000, wait * 2)) {
    const query = new URLSearchParams({ filter: $("events-filter").value });
    if ($("events-payload").checked) query.set("payload", "true");
    const began = performance.now();
    try {
      const response = await ask(`/tail?${query}`, mine.signal);
      if (!response) return showState("not allowed");
      if (!response.ok) {
        show($("events-problem"), await said(response));
        $("events-problem").hidden = false;
        if (response.status === 400) return showState("not looking");
      } else {
        showState("looking");
        await read(response.body, mine.signal);
      }
    } catch (error) {
      if (mine.signal.aborted) return;
    }
    showState("connecting again");
    if (performance.now() - began > 5000) wait = 500;
    await new Promise((done) => setTimeout(done, wait));
  }
}

function showState(state) {
  said_ = state;
  show($("events-sum"), `${state}${seen ? `, ${number(seen)} seen` : ""}${missed ? `, ${number(missed)} not shown: too many at once` : ""}`);
}

// read reads server-sent events: EventSource can't send a token.
async function read(body, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done || signal.aborted) return;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const data = message.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data) arrived(JSON.parse(data));
    }
  }
}

function arrived(batch) {
  seen += batch.events?.length ?? 0;
  missed += batch.dropped;
  showState(said_);
  if (paused) return;
  const body = $("events-rows");
  body.prepend(...(batch.events ?? []).slice(-keptEvents).reverse().map(eventRow));
  while (body.rows.length > keptEvents) body.lastChild.remove();
  $("events-empty").hidden = body.rows.length > 0;
}

const kinds = { added: "good", deleted: "bad", gap: "bad", quarantined: "bad", updated: "", synced: "" };

function eventRow(e) {
  const row = element("tr");
  const path = e.namespace ? `${e.namespace}/${e.name}` : e.name ?? "";
  const object = element("td");
  if (e.name) {
    const button = element("button", { type: "button", class: "link", title: "Look up its last settled state" }, path);
    button.addEventListener("click", () => lookUp(e.resource, e.namespace ?? "", e.name));
    object.append(button);
  } else object.append(e.subject);
  if (e.payload) object.append(element("details", {}, element("summary", {}, e.truncated ? "payload, cut" : "payload"), element("pre", { tabindex: "0" }, pretty(e.payload))));
  const what = element("td", {}, element("span", { class: `badge ${kinds[e.op] ?? ""}` }, e.op));
  for (const [flag, text] of [[e.initial, "initial"], [e.inferred, "inferred"]]) if (flag) what.append(" ", element("span", { class: "soft" }, text));
  const sink = element("td", {}, e.sink);
  if (e.outcome !== "acknowledged") sink.append(" ", element("span", { class: `badge ${e.outcome === "recalled" ? "" : "bad"}` }, e.outcome));
  if (e.attempts > 1) sink.append(" ", element("span", { class: "soft" }, `${e.attempts} attempts`));
  row.append(
    element("td", { class: "mono" }, clock(e.settled)), what, element("td", {}, e.resource), object, element("td", { class: "n mono" }, e.version ?? ""),
    element("td", {}, e.manager ?? ""), sink, element("td", { class: "n" }, duration(e.seconds)), element("td", { class: "n" }, bytes(e.bytes)),
  );
  return row;
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

$("events-form").addEventListener("submit", (event) => {
  event.preventDefault();
  clear();
  look();
});
$("events-payload").addEventListener("change", () => look());
$("events-clear").addEventListener("click", clear);
$("events-pause").addEventListener("click", () => {
  paused = !paused;
  $("events-pause").setAttribute("aria-pressed", String(paused));
});

function clear() {
  $("events-rows").replaceChildren();
  $("events-empty").hidden = false;
  seen = missed = 0;
  showState(said_);
}

// --- one object

$("object-form").addEventListener("submit", (event) => {
  event.preventDefault();
  lookUp($("object-resource").value, $("object-namespace").value.trim(), $("object-name").value.trim());
});

async function lookUp(resource, namespace, name) {
  $("object-resource").value = resource;
  $("object-namespace").value = namespace;
  $("object-name").value = name;
  $("object").scrollIntoView();
  const found = $("object-found");
  const nothing = (text) => found.replaceChildren(element("p", { class: "none soft" }, text));
  try {
    const path = `/object?${new URLSearchParams({ resource, namespace, name })}`;
    let response = await ask(path);
    if (response?.status === 404) { // an event is shown when a sink has it, the state after the next commit
      await new Promise((done) => setTimeout(done, 700));
      response = await ask(path);
    }
    if (!response) return nothing("Not allowed.");
    if (!response.ok) return nothing(await said(response));
    found.replaceChildren(...(await response.json()).map(article));
  } catch (error) {
    nothing(`The bridge does not answer: ${error.message}`);
  }
}

function article(o) {
  const path = o.namespace ? `${o.namespace}/${o.name}` : o.name;
  const e = element("article", {}, element("h3", {}, `${o.resource} ${path}`, " ", element("span", { class: `badge ${o.deleted ? "bad" : "good"}` }, o.deleted ? "deleted" : "exists")));
  e.append(element("p", { class: "soft" }, `informer ${o.informer}, version ${o.version}, uid ${o.uid}`));
  if (o.earlier) e.append(element("p", { class: "soft" }, `Shown is version ${o.earlier}: of version ${o.version}, which was sent, the state has no object (state.bodiesPerSecond).`));
  if (o.problem) e.append(element("p", { class: "problem" }, o.problem));
  if (o.object) e.append(element("pre", { tabindex: "0", "aria-label": `Last settled state of ${path}` }, JSON.stringify(o.object, null, 2)));
  return e;
}

export { $, ask, duration, element, kinds, number, said, show };

poll();
setInterval(age, 500);
look();
