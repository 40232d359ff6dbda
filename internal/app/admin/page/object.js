// Object: every version of one object, and what differs between two of them.

import { addressTo, ask, button, element, number, path, plural, question, reason, shortKind } from "./base.js";
import { difference, isStatusOnly, short, when, who } from "./detail.js";
import { drawLanes, hatchesOf, holesOf, nearest, noteOf, scaleOf } from "./lanes.js";
import { VirtualList } from "./list.js";
import { clock, moment } from "./time.js";

const signs = { added: "+", updated: "~", deleted: "×" };

let context;
let parts = {};
let list;
let state = null;
let turn = 0;
let observer;

export function enter(view, given) {
  context = given;
  parts = { view };
}

export function leave() {
  observer?.disconnect();
  state = null;
  turn++;
}

export async function show(r) {
  const [resource, namespace, name] = r.parts;
  if (!name) return picker();
  const key = `${r.parts.join("/")}?${r.query.get("cluster") ?? ""}`;
  if (state?.key === key) return choose(r.query);
  const mine = ++turn;
  state = null;
  const o = { resource, namespace, name, cluster: r.query.get("cluster") ?? undefined };
  try {
    const answer = await question("versions", { object: `${resource}/${name}`, namespace, cluster: o.cluster, limit: 500 });
    if (mine !== turn) return;
    build({ key, o: { ...o, cluster: answer.cluster }, answer });
    choose(r.query);
  } catch (error) {
    if (mine === turn) settled(o, error.message);
  }
}

const recentMost = 15;

// picker shows the objects that changed last.
async function picker() {
  const mine = ++turn;
  state = null;
  const list = element("ul", { class: "compared", id: "recent" });
  parts.view.replaceChildren(element("section", {}, element("div", { class: "head" }, element("h2", {}, "Object"), element("p", { class: "sum" }, "Find one with the field above (key /): a part of its name, or deploy/web. These changed last:")), list));
  try {
    const { changes } = await question("timeline", { since: "1d ago", order: "newest", limit: 200, hide: "status,derived,child" });
    if (mine !== turn) return;
    const newest = new Map();
    for (const c of changes) if (!newest.has(`${c.resource} ${path(c)}`)) newest.set(`${c.resource} ${path(c)}`, c);
    list.replaceChildren(...[...newest.values()].slice(0, recentMost).map((c) => element("li", {}, element("span", { class: `sign ${c.operation}`, "aria-hidden": "true" }, signs[c.operation]), element("span", {}, element("a", { href: context.addressOf(c) }, `${shortKind(c.resource)}/${c.name}`), element("span", { class: "soft" }, ` ${c.namespace ?? ""}`)), element("span", { class: "change" }, short(c)), element("span", { class: "mono soft" }, when(c, clock)))));
    if (!newest.size) list.append(element("li", { class: "soft" }, "Nothing in the last day."));
  } catch (error) {
    if (mine === turn) list.append(element("li", { class: "soft" }, error.message));
  }
}

// settled shows the last settled state, where the history has nothing.
async function settled(o, problem) {
  const box = element("div", {});
  parts.view.replaceChildren(element("section", {}, element("div", { class: "head" }, element("h2", {}, `${o.resource} ${path(o)}`)), element("p", { class: "problem", role: "alert" }, problem), box));
  try {
    const response = await ask(`object?${new URLSearchParams({ resource: o.resource, namespace: o.namespace, name: o.name })}`);
    if (!response) return;
    if (!response.ok) return box.replaceChildren(element("p", { class: "help" }, await reason(response)));
    box.replaceChildren(...(await response.json()).map((s) => element("div", {}, element("p", { class: "help" }, `The last settled state, of informer ${s.informer}, version ${s.version}:`), element("pre", { tabindex: "0", "aria-label": "The last settled state" }, JSON.stringify(s.object, null, 2) ?? s.problem ?? ""))));
  } catch (error) {
    box.replaceChildren(element("p", { class: "help" }, error.message));
  }
}

function build(s) {
  state = { ...s, showStatus: false, versions: [...s.answer.versions].reverse() };
  const { o, answer } = state;
  const newest = state.versions[0];
  const gone = newest?.operation === "deleted";
  const statusOnly = state.versions.filter(isStatusOnly).length;
  parts.list = element("div", { class: "list", tabindex: "-1", role: "region", "aria-label": "Versions, the newest first", id: "versions" });
  parts.detail = element("div", { class: "difference", id: "object-difference" });
  parts.title = element("h2", { id: "object-pair" });
  parts.who = element("p", { id: "object-who" });
  parts.command = element("code", { id: "object-command" });
  parts.canvas = element("canvas", { "aria-hidden": "true" });
  parts.strip = element("div", { class: "strip" }, parts.canvas);
  parts.hide = element("input", { type: "checkbox", id: "hide-status", checked: true });
  parts.count = element("p", { class: "sum", id: "object-sum" });
  parts.hide.addEventListener("change", () => choose(context.route().query, true));
  const toggle = statusOnly && statusOnly < state.versions.length ? button("show", { class: "link", id: "versions-status" }, () => {
    state.showStatus = !state.showStatus;
    toggle.textContent = state.showStatus ? "hide them" : "show";
    choose(context.route().query, true);
  }) : "";
  const notes = hatchesOf(holesOf(answer)).slice(0, 3).map(noteOf);
  const copies = ["Markdown", "JSON"].map((form) => button(`copy ${form}`, {}, () => copyAs(form)));
  parts.ownership = element("span", { class: "row", id: "object-ownership" });
  if (newest && !gone) ownership(o, newest.resourceVersion, parts.ownership).catch(() => { /* the versions are what was asked for */ });
  parts.view.replaceChildren(
    element("div", { class: "bar" }, element("h2", { tabindex: "-1", id: "object-title" }, `${o.resource} ${path(o)}`), element("span", { class: `badge ${gone ? "bad" : "good"}` }, gone ? "deleted" : "exists"),
      element("span", { class: "soft" }, answer.horizon ? `complete since ${moment(answer.horizon)}` : state.versions.length ? `known since ${moment(state.versions.at(-1).time)}` : ""),
      parts.ownership, o.namespace ? element("a", { href: addressTo("timeline", { ns: o.namespace, since: "1d", q: o.name }) }, "timeline") : ""),
    notes.length ? element("div", {}, ...notes) : "", parts.strip,
    element("div", { class: "row" }, parts.count, toggle),
    element("div", { class: "split" },
      element("div", { class: "column" }, parts.list, answer.earlier ? element("p", { class: "soft" }, `${number(answer.earlier)} earlier ones are not shown.`) : ""),
      element("section", { class: "detail first", "aria-label": "The difference" }, element("div", { class: "row" }, parts.title, element("label", { class: "check end" }, parts.hide, " hide status")), parts.who, parts.detail, element("div", { class: "row foot" }, ...copies, button("copy link", {}, () => context.copyLink()), parts.command))),
  );
  list = new VirtualList(parts.list, 46, row, pick);
  observer?.disconnect();
  observer = new ResizeObserver(strip);
  observer.observe(parts.strip);
  parts.strip.addEventListener("click", (event) => {
    const point = nearest(state.lane, event.clientX - parts.canvas.getBoundingClientRect().left, state.scale);
    if (point) context.set({ v: point[2], vs: undefined });
  });
}

// mostAsked bounds the objects that are asked what they own.
const mostAsked = 30;

// ownership says what an object is owned by and what it owns, as the bridge knows it now.
async function ownership(o, version, box) {
  const { object: self } = await question("object", { object: `${o.resource}/${o.name}`, namespace: o.namespace, cluster: o.cluster, at: version });
  if (!self?.metadata?.uid) return;
  const owner = self.metadata.ownerReferences?.find((r) => r.controller);
  const resource = owner && context.known()?.resources.find((r) => resourceOf(owner, r));
  if (resource) box.append(element("span", { class: "soft" }, "of ", element("a", { href: context.addressOf({ resource, namespace: resource === "nodes" ? "" : o.namespace, name: owner.name }) }, `${shortKind(resource)}/${owner.name}`)));
  const [owned, asked] = [new Map(), [self.metadata.uid]];
  for (const uid of asked) {
    const response = await ask(`objects?${new URLSearchParams({ index: "owner", value: uid })}`);
    if (!response?.ok) return;
    for (const child of (await response.json()).objects ?? []) {
      if (owned.has(child.uid)) continue;
      owned.set(child.uid, child);
      if (asked.length < mostAsked && child.resource !== "pods") asked.push(child.uid);
    }
  }
  if (!owned.size) return;
  const counts = new Map();
  for (const child of owned.values()) counts.set(child.resource, (counts.get(child.resource) ?? 0) + 1);
  const list = [...owned.values()].map((c) => element("li", {}, element("a", { href: context.addressOf(c) }, `${shortKind(c.resource)}/${c.name}`), c.ready ? element("span", { class: c.ready === "True" ? "soft" : "failing" }, c.ready === "True" ? " ready" : " not ready") : ""));
  const more = asked.length === mostAsked ? element("li", { class: "soft" }, "and what these own") : "";
  box.append(element("details", { class: "owned" }, element("summary", {}, `owns ${[...counts].map(([r, n]) => `${number(n)} ${shortKind(r)}`).join(", ")}`), element("ul", {}, ...list, more)));
}

// resourceOf reports whether a resource is that of an owner: replicasets.apps of ReplicaSet in apps/v1.
function resourceOf(owner, resource) {
  const [name, ...group] = resource.split(".");
  const kind = owner.kind.toLowerCase();
  return [`${kind}s`, `${kind}es`, kind.replace(/y$/, "ies")].includes(name) && group.join(".") === (owner.apiVersion.includes("/") ? owner.apiVersion.split("/")[0] : "");
}

const row = (v, i) => [
  element("span", { class: "mono time" }, when(v, clock)), element("span", { class: `sign ${v.operation}`, "aria-hidden": "true" }, signs[v.operation] ?? "?"),
  element("span", { class: "what" }, element("b", {}, v.resourceVersion), state?.shown[i]?.resourceVersion === state?.against ? element("span", { class: "badge" }, "against") : ""), element("span", { class: "change" }, v.operation === "updated" ? short(v) : v.operation), element("span", { class: "by" }, who(v)),
];

// pick chooses a version; with Shift the one that it is compared with.
function pick(i, event) {
  const v = state.shown[i].resourceVersion;
  if (event?.shiftKey && state.v && v !== state.v) return context.set({ vs: v });
  context.set({ v, vs: undefined });
}

// choose shows what the address says: a version against the one before, or two.
async function choose(query, again = false) {
  const statusOnly = state.versions.filter(isStatusOnly);
  const hide = !state.showStatus && statusOnly.length < state.versions.length;
  let [v, against] = [query.get("v"), query.get("vs") ?? ""];
  const at = v === null ? -1 : state.versions.findIndex((x) => x.resourceVersion === v);
  state.shown = hide ? state.versions.filter((x, i) => !isStatusOnly(x) || i === at || x.resourceVersion === against) : state.versions;
  if (at < 0) v = state.shown[0]?.resourceVersion;
  Object.assign(state, { v, against });
  parts.count.textContent = `${number(state.shown.length)} of ${plural(state.versions.length, "version")}${hide && statusOnly.length ? `, ${number(state.versions.length - state.shown.length)} status-only hidden` : ""}. Shift-click compares with another.`;
  const i = state.shown.findIndex((x) => x.resourceVersion === v);
  parts.list.classList.toggle("dated", state.shown.some((x) => clock(x.time).length > 14));
  list.set(state.shown, i);
  list.select(i);
  strip();
  const mode = query.get("show") ?? "fields";
  const key = [v, against, mode, parts.hide.checked].join();
  if (key === state.drawn && !again) return;
  state.drawn = key;
  const version = state.versions.find((x) => x.resourceVersion === v);
  if (!version) return parts.detail.replaceChildren(element("p", { class: "problem" }, `Version ${query.get("v") ?? ""} is not among those that are kept.`));
  // the older one of two is compared with the newer one
  let [older, newer] = [against, v];
  const order = state.versions.map((x) => x.resourceVersion);
  if (older && order.indexOf(older) < order.indexOf(newer)) [older, newer] = [newer, older];
  const { o } = state;
  parts.title.textContent = older ? `${older} → ${newer}` : `${version.previous && version.operation !== "added" ? `${version.previous} → ` : ""}${v}`;
  parts.who.replaceChildren(`${when(version)} `, who(version));
  parts.command.replaceChildren(older || version.previous ? `bridge diff ${shortKind(o.resource)}/${o.name}${o.namespace ? ` -n ${o.namespace}` : ""} --from ${older || version.previous} --to ${newer}` : `bridge show ${shortKind(o.resource)}/${o.name}${o.namespace ? ` -n ${o.namespace}` : ""} --at ${newer}`, element("span", { id: "object-place" }, place(o)));
  if (query.get("v") && !state.versions.some((x) => x.resourceVersion === query.get("v"))) context.say(`Version ${query.get("v")} is not among those that are kept.`);
  try {
    state.difference = await difference(parts.detail, o, newer, { from: older || undefined, mode, hideStatus: parts.hide.checked, isTitled: true, onMode: (m) => context.set({ show: m === "fields" ? undefined : m }) });
  } catch (error) {
    if (key === state?.drawn) parts.detail.replaceChildren(element("p", { class: "problem" }, error.message));
  }
}

// place is how a command finds this history: the directory where it is not that of a bridge without a file.
function place(o) {
  const { dir = "", clusters = [] } = context.known() ?? {};
  const given = /^(\.\/)?bridge-state\/history$/.test(dir) || !dir ? "" : ` --dir ${/^[\w./:@-]+$/.test(dir) ? dir : `'${dir.replaceAll("'", "'\\''")}'`}`;
  return given + (clusters.length > 1 ? ` --cluster ${o.cluster}` : "");
}

function strip() {
  if (!state?.versions.length || parts.strip.clientWidth < 50) return;
  const ordered = [...state.versions].reverse();
  const marks = { added: "+", updated: "~", deleted: "-" };
  const points = ordered.filter((v) => state.shown?.includes(v)).slice(-300).map((v) => [Date.parse(v.time), v.notBefore ? { added: "A", updated: "U", deleted: "D" }[v.operation] : marks[v.operation], v.resourceVersion]);
  const [from, to] = [points[0]?.[0] ?? 0, Date.now()];
  const pad = Math.max((to - from) * 0.02, 1000);
  state.lane = { points, existed: ordered[0].operation !== "added" };
  state.scale = scaleOf(from - pad, to, parts.strip.clientWidth, 300);
  const chosen = points.find((p) => p[2] === state.v);
  drawLanes(parts.canvas, [{ lane: state.lane, top: 0, height: 30 }], () => hatchesOf(holesOf(state.answer)), state.scale, chosen && { lane: null, time: chosen[0] });
}

async function copyAs(form) {
  const d = state.difference;
  if (!d) return;
  const seen = d.changed.filter((c) => !c.field.startsWith("metadata.managedFields"));
  const lines = seen.map((c) => `- \`${c.field || "the object"}\`: ${c.old === undefined ? "none" : `\`${JSON.stringify(c.old)}\``} → ${c.new === undefined ? "none" : `\`${JSON.stringify(c.new)}\``}`);
  const text = form === "JSON" ? JSON.stringify({ ...d, changed: seen }, null, 2) : `**${state.o.resource} ${path(state.o)}** ${parts.title.textContent}, ${parts.who.textContent}\n\n${lines.join("\n")}\n\n${location.href}\n`;
  try {
    await navigator.clipboard.writeText(text);
    context.say(`The difference is copied as ${form}.`);
  } catch {
    prompt("The difference:", text);
  }
}

export function key(k) {
  if (!state?.shown) return false;
  const step = { ArrowLeft: 1, k: -1, ArrowRight: -1, j: 1 }[k];
  if (step) {
    const next = Math.min(Math.max(list.chosen + step, 0), state.shown.length - 1);
    context.set({ v: state.shown[next].resourceVersion, vs: undefined }, true);
    return true;
  }
  if (k !== "y") return false;
  const now = context.route().query.get("show") ?? "fields";
  context.set({ show: now === "fields" ? "yaml" : undefined });
  return true;
}
