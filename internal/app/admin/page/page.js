// The page: the header, the addresses of the views, the keys, and the status of the bridge each second. It only reads.

import { $, addressTo, ask, clusterOf, duration, element, path, plural, question, shortKind, show } from "./base.js";
import { clock, iso, isFixed, windowOf } from "./time.js";
import * as health from "./health.js";
import * as timeline from "./timeline.js";
import * as object from "./object.js";
import * as compare from "./compare.js";
import * as live from "./live.js";

const views = { health, timeline, object, compare, live };
const every = 1000; // ms between two looks
const patience = 5000; // ms after which what is shown is old

// --- addresses: #/view/part/part?query

let current = null; // the view that is shown

function route() {
  const [where, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = where.split("/");
  return { name: views[name] ? name : "health", parts: parts.map(decoded), query: new URLSearchParams(query) };
}

// decoded is a part of an address; one that is not encoded well is taken as it is.
function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

// go leads to an address. A decision makes an entry that Back undoes; typing replaces the last one.
function go(address, replace = false) {
  if (address === location.hash) return render();
  history[replace ? "replaceState" : "pushState"](null, "", address);
  render();
}

// set changes parameters of the address; undefined removes one.
function set(changes, replace = false) {
  const { name, parts, query } = route();
  for (const [key, value] of Object.entries(changes)) {
    if (value === undefined || value === "") query.delete(key);
    else query.set(key, value);
  }
  const text = query.toString();
  go(`#/${[name, ...parts.map(encodeURIComponent)].join("/")}${text ? `?${text}` : ""}`, replace);
}

export const addressOf = (o, query = {}) => addressTo(`object/${[o.resource, o.namespace ?? "", o.name].map(encodeURIComponent).join("/")}`, query);

function render() {
  const r = route();
  const view = views[r.name];
  for (const link of $("views").children) {
    if (link.getAttribute("href") === `#/${r.name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  $("found").hidden = true;
  if (known && learnedOf !== clusterOf()) learn();
  if (current !== view) {
    current?.leave?.();
    current = view;
    $("view").replaceChildren();
    view.enter($("view"), context);
    if (status) view.status?.(status);
  }
  document.title = `${status && !status.ready ? "not ready: " : ""}${r.name} – bridge ${status?.cluster ?? ""}`.trim();
  view.show(r);
}

const context = { go, set, route, addressOf, say: (text) => show($("said"), text), known: () => known, status: () => status };

addEventListener("popstate", render);
for (const link of $("views").children) link.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const { query, name } = route();
  const to = link.getAttribute("href");
  if (to !== `#/${name}`) go(addressTo(to.slice(2), { ns: to === "#/health" ? undefined : query.get("ns") }));
});
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
});
document.addEventListener("zone", () => {
  current?.leave?.();
  current = null;
  render();
});

// --- search

let known = null; // what /history/resources has said
let learnedOf; // the cluster that it was asked of
let turn = 0;

async function learn() {
  learnedOf = clusterOf();
  try {
    known = await question("resources", {});
    if (!known.kept) setTimeout(learn, performance.now() < 15000 ? 1000 : 5000); // it opens later than this server
  } catch { setTimeout(learn, 5000); }
  if (!known) return;
  clusters();
  current?.learned?.();
}

// clusters lets a person choose one of several.
function clusters() {
  const [box, several] = [$("clusters"), (known.clusters?.length ?? 0) > 1];
  box.hidden = !several;
  if (!several) return;
  const select = $("cluster-of");
  select.replaceChildren(...known.clusters.map((name) => element("option", { value: name }, name)));
  select.value = clusterOf() ?? known.cluster ?? "";
}
$("cluster-of").addEventListener("change", (event) => set({ cluster: event.target.value, ns: undefined, kind: undefined, sel: undefined }));

// found leads to an object, and gives the keys back to the view.
function found(o) {
  $("find").value = "";
  $("main").focus();
  go(addressOf(o));
}

async function find(choose) {
  const text = $("find").value.trim();
  const mine = ++turn;
  const [kind, name] = text.includes("/") ? text.split("/") : ["", text];
  if (!name) return void ($("found").hidden = true);
  const box = $("found");
  try {
    const answer = await question("search", { q: text, limit: 50 });
    if (mine !== turn) return;
    const exact = answer.objects.filter((o) => o.name === name);
    if (choose && answer.objects.length && (exact.length === 1 || answer.objects.length === 1 || (kind && exact.length))) return found(exact[0] ?? answer.objects[0]);
    if (choose && exact.length) return found(exact[0]);
    const list = element("ul", { "aria-label": "Objects that were found" }, ...answer.objects.map((o) => element("li", {}, element("a", { href: addressOf(o) }, element("b", {}, `${shortKind(o.resource)}/${o.name}`), " ", element("span", { class: "soft" }, o.namespace ?? "")))));
    box.replaceChildren(answer.objects.length ? list : element("p", {}, `The history has never seen an object with “${text}” in its name.`), answer.more ? element("p", { class: "soft" }, "There are others: name more of it.") : "");
    context.say(`${plural(answer.objects.length, "object")} found`);
  } catch (error) {
    if (mine !== turn) return;
    box.replaceChildren(element("p", { class: "problem" }, error.message));
  }
  box.hidden = false;
}

let typing;
$("find").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(find, 200);
});
$("find-form").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  find(true);
});
document.addEventListener("click", (event) => {
  if (!$("find-form").contains(event.target)) $("found").hidden = true;
});

// --- keys

const keysOff = "bridge-keys-off";
$("keys-on").checked = !sessionStorage.getItem(keysOff);
$("keys-on").addEventListener("change", () => ($("keys-on").checked ? sessionStorage.removeItem(keysOff) : sessionStorage.setItem(keysOff, "1")));
$("help-open").addEventListener("click", () => $("help").showModal());

addEventListener("keydown", (event) => {
  if (event.key === "Escape") $("found").hidden = true;
  if (event.ctrlKey || event.metaKey || event.altKey || !$("keys-on").checked || $("help").open) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const done = keys[event.key]?.() ?? current?.key?.(event.key);
  if (done) event.preventDefault();
});

const keys = {
  "/": () => ($("find").focus(), true),
  "?": () => ($("help").showModal(), true),
  c: () => (copy(absolute()), true),
};
Object.keys(views).forEach((name, i) => { keys[i + 1] = () => ($("views").children[i].click(), true); });

// absolute is the address with the times that are shown: it means the same tomorrow.
function absolute() {
  const { name, query } = route();
  const url = new URL(location.href);
  if (name === "timeline" && !isFixed(query)) {
    const [from, to] = timeline.shownWindow() ?? windowOf(query);
    query.delete("since");
    query.set("from", iso(from));
    query.set("to", iso(to));
    url.hash = `#/${name}?${query}`;
  }
  if (name === "compare" && (query.get("b") ?? "now") === "now") {
    query.set("b", iso(Date.now()));
    url.hash = `#/${name}?${query}`;
  }
  return url.href;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    context.say("The link is copied, with absolute times.");
  } catch {
    prompt("The link, with absolute times:", text);
  }
}
context.copyLink = () => copy(absolute());

// --- status

let status = null;
let answered = 0; // when the bridge last answered, by performance.now
let nextPoll; // a timer, while no answer is awaited

async function poll() {
  try {
    const response = await ask("status", AbortSignal.timeout(patience));
    if (!response) return; // a token starts it again
    status = await response.json();
    answered = performance.now();
    draw();
  } catch {
    if (answered === 0) show($("state"), "no answer", "badge bad");
  }
  nextPoll = setTimeout(poll, document.hidden ? 5 * every : every);
}

function draw() {
  const s = status;
  show($("cluster"), s.cluster ?? "");
  show($("version"), s.version ? `bridge ${s.version}, runs for ${duration((Date.now() - Date.parse(s.started)) / 1000)}` : "");
  const since = s.reasons.map((r) => Date.parse(r.since)).filter((t) => t > 0);
  const long = since.length ? ` ${duration((Date.now() - Math.min(...since)) / 1000)}` : "";
  show($("state"), `bridge ${s.starting ? "starting" : s.ready ? "ready" : `not ready${long}`}`, `badge ${s.ready ? "good" : "warn"}`);
  document.title = `${s.ready ? "" : "not ready: "}${route().name} – bridge ${s.cluster ?? ""}`.trim();
  current?.status?.(s);
}

// age shows how old what is shown is, also when no answer comes any more.
function age() {
  if (answered === 0) return;
  const old = performance.now() - answered;
  const at = Date.now() - old;
  show($("fresh"), old < patience ? `as of ${clock(at).replace(/\..*/, "")}` : `as of ${clock(at)}, ${duration(old / 1000)} old`);
  const gone = old >= patience && !document.hidden;
  document.body.classList.toggle("stale", gone);
  if (gone) {
    show($("state"), "no answer", "badge bad");
    if ($("gone").hidden) show($("gone"), `The bridge does not answer since ${clock(at)}: it has ended, or can't be reached. What is below is from then.`);
  }
  $("gone").hidden = !gone;
}

document.addEventListener("refused", () => {
  answered = 0; // what is shown stays, and is not said to be live
  $("gone").hidden = true;
  show($("fresh"), "");
  show($("state"), "refused", "badge warn");
});
document.addEventListener("admitted", () => {
  clearTimeout(nextPoll);
  poll();
  learn();
  current?.leave?.();
  current = null;
  render();
});

render();
poll();
learn();
setInterval(age, 500);
