// Live: events as sinks settle them, a row for each change with a mark for each sink. Leases are left out.

import { $, ask, button, bytes, duration, element, number, reason, show as text, shortName } from "./base.js";
import { clock } from "./time.js";

const keptRows = 200;
const mostAtOnce = 30; // rows of one message: more are counted, so that a flood leaves the page usable
const quiet = 'meta.resource != "leases"';

let context;
let looking = null; // an AbortController while the tail is open
let paused = false;
let seen = 0;
let missed = 0;
let said = "";
let rows = new Map(); // by change

export function enter(view, given) {
  context = given;
  paused = false;
  view.replaceChildren(
    element("form", { class: "bar", role: "search", "aria-label": "Events", id: "events-form" },
      element("label", { class: "field wide" }, element("span", {}, "Filter"), element("input", { id: "events-filter", type: "search", placeholder: 'meta.resource == "pods" && op != "updated"', autocomplete: "off", spellcheck: "false", "aria-describedby": "events-help" })),
      element("label", { class: "check" }, element("input", { id: "events-payload", type: "checkbox" }), " payloads"), element("button", { type: "submit" }, "Show"),
      button("Pause", { id: "events-pause", "aria-pressed": "false" }, pause), button("Clear", { id: "events-clear" }, clear)),
    element("p", { class: "sum", id: "events-sum", role: "status" }, "not looking"),
    element("p", { class: "help", id: "events-help" }, "What sinks settle, from now on. The filter is a CEL condition, as in the configuration: ", element("code", {}, 'meta.namespace == "shop"'), ", ", element("code", {}, 'op in ["added", "deleted"]'), ", ", element("code", {}, 'sink == "lake" && outcome != "acknowledged"'), ", ", element("code", {}, "bytes > 100000"), ". Without one, Leases are left out."),
    element("p", { class: "problem", id: "events-problem", role: "alert", hidden: true }),
    element("div", { class: "scroll tail", tabindex: "0", role: "region", "aria-label": "Table of events" }, element("table", { class: "cards" }, element("caption", { class: "hide" }, "Events, the newest first"),
      element("thead", {}, element("tr", {}, ...[["Settled"], ["What"], ["Object"], ["Version", "n"], ["Manager"], ["Sinks"], ["Size", "n"]].map(([name, kind]) => element("th", { scope: "col", class: kind }, name)))), element("tbody", { id: "events-rows" })), element("p", { class: "empty", id: "events-empty" }, "Nothing yet.")),
  );
  $("events-form").addEventListener("submit", (event) => {
    event.preventDefault();
    clear();
    const filter = $("events-filter").value.trim();
    if (filter === (context.route().query.get("filter") ?? "")) return look();
    context.set({ filter });
  });
  $("events-payload").addEventListener("change", () => look());
}

export function leave() {
  looking?.abort();
  looking = null;
  rows = new Map();
  seen = missed = 0;
}

let shown = null;

export function show(r) {
  const filter = r.query.get("filter") ?? "";
  if (looking && filter === shown) return;
  shown = filter;
  $("events-filter").value = filter;
  look();
}

async function look() {
  looking?.abort();
  const mine = (looking = new AbortController());
  $("events-problem").hidden = true;
  state("connecting");
  for (let wait = 500; !mine.signal.aborted; wait = Math.min(10000, wait * 2)) {
    const query = new URLSearchParams({ filter: $("events-filter").value.trim() || quiet });
    if ($("events-payload").checked) query.set("payload", "true");
    const began = performance.now();
    try {
      const response = await ask(`tail?${query}`, mine.signal);
      if (mine.signal.aborted) return;
      if (!response) return state("not allowed");
      if (!response.ok) {
        text($("events-problem"), await reason(response));
        $("events-problem").hidden = false;
        if (response.status === 400) return state("not looking");
      } else {
        state("looking");
        await read(response.body, mine.signal);
      }
    } catch {
      if (mine.signal.aborted) return;
    }
    if (mine.signal.aborted) return;
    state("connecting again");
    if (performance.now() - began > 5000) wait = 500;
    await new Promise((done) => setTimeout(done, wait));
  }
}

function state(now) {
  said = now;
  if ($("events-sum")) text($("events-sum"), `${now}${seen ? `, ${number(seen)} seen` : ""}${missed ? `, ${number(missed)} not shown: too many at once` : ""}`);
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
  missed += batch.dropped + (paused ? 0 : Math.max(0, (batch.events?.length ?? 0) - mostAtOnce));
  state(said);
  if (paused) return;
  const body = $("events-rows");
  const made = [];
  for (const e of (batch.events ?? []).slice(-mostAtOnce)) {
    const key = `${e.informer}|${e.resource}|${e.namespace}|${e.name}|${e.version}|${e.op}`;
    const row = e.name && rows.get(key);
    if (row) {
      row.cells[5].append(" ", sinkMark(e));
      continue;
    }
    made.unshift(eventRow(e));
    made[0].dataset.key = key;
    rows.set(key, made[0]);
  }
  body.prepend(...made);
  while (body.rows.length > keptRows) {
    rows.delete(body.lastChild.dataset.key);
    body.lastChild.remove();
  }
  $("events-empty").hidden = body.rows.length > 0;
}

const kinds = { added: "good", deleted: "bad", gap: "bad", quarantined: "bad" };

function sinkMark(e) {
  const good = e.outcome === "acknowledged";
  return element("span", { class: `badge ${good ? "" : e.outcome === "recalled" ? "" : "bad"}`, title: `${e.outcome} ${duration(e.seconds)} after the change was observed` }, `${good ? "✓ " : ""}${e.sink}${good ? ` ${duration(e.seconds)}` : ` ${e.outcome}`}${e.attempts > 1 ? `, ${e.attempts} attempts` : ""}`);
}

function eventRow(e) {
  const o = { resource: e.resource, namespace: e.namespace ?? "", name: e.name };
  const object = element("td", { "data-name": "Object" }, e.name ? element("a", { href: context.addressOf(o, e.version ? { v: e.version } : {}) }, shortName(o)) : e.subject, e.namespace ? element("span", { class: "soft" }, ` ${e.namespace}`) : "");
  if (e.payload) object.append(element("details", {}, element("summary", {}, e.truncated ? "payload, cut" : "payload"), element("pre", { tabindex: "0" }, pretty(e.payload))));
  const what = element("td", { "data-name": "What" }, element("span", { class: `badge ${kinds[e.op] ?? ""}` }, e.op));
  for (const [flag, word] of [[e.initial, "first list"], [e.inferred, "by a list"]]) if (flag) what.append(" ", element("span", { class: "soft" }, word));
  return element("tr", {}, element("td", { class: "mono", "data-name": "Settled" }, clock(e.settled)), what, object, element("td", { class: "n mono", "data-name": "Version" }, e.version ?? ""), element("td", { "data-name": "Manager" }, e.manager ?? ""), element("td", { "data-name": "Sinks" }, sinkMark(e)), element("td", { class: "n", "data-name": "Size" }, bytes(e.bytes)));
}

function pretty(payload) {
  try { return JSON.stringify(JSON.parse(payload), null, 2); } catch { return payload; }
}

function pause() {
  paused = !paused;
  $("events-pause").setAttribute("aria-pressed", String(paused));
}

function clear() {
  rows = new Map();
  $("events-rows").replaceChildren();
  $("events-empty").hidden = false;
  seen = missed = 0;
  state(said);
}
