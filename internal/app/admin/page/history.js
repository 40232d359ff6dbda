// The history view: what an object was, what differs between two versions, and what happened in a namespace. It asks
// /history only when somebody looks.

import { $, ask, element, kinds, number, said, show } from "/page.js";
import { differences, fold } from "/lines.js";

const marks = { added: "+", updated: "~", deleted: "−", synced: "=" };
const onAxis = 200; // versions
const maxFields = 4; // that a row names

let known = null; // what /history/resources has said
let shown = null; // the object that is shown: its versions, and the chosen ones
let turn = 0; // of the newest question: an answer that comes late is not shown

const moment = (time) => `${new Date(time).toISOString().slice(0, 19).replace("T", " ")}Z`; // 2026-11-22 14:03:07Z
const path = (o) => (o.namespace ? `${o.namespace}/${o.name}` : o.name);

function problem(text) {
  show($("history-problem"), text);
  $("history-problem").hidden = !text;
}

// question gives an answer, or null where there is none, or where another was asked meanwhile.
async function question(name, parameters) {
  const mine = ++turn;
  problem("");
  try {
    const response = await ask(`/history/${name}?${new URLSearchParams(parameters)}`);
    if (mine !== turn) return null;
    if (!response) problem("Not allowed.");
    else if (!response.ok) problem(await said(response));
    else return await response.json();
  } catch (error) {
    if (mine === turn) problem(`The bridge does not answer: ${error.message}`);
  }
  return null;
}

async function begin() {
  known = await question("resources", {});
  if (!known) return;
  const kept = known.kept;
  show($("history-sum"), kept ? `${number(known.resources.length)} resources${known.horizon ? `, from ${moment(known.horizon)} on` : ""}` : "This bridge keeps no history: add a sink of kind history.");
  for (const id of ["history-form", "timeline-form"]) $(id).hidden = !kept;
  if (!kept) setTimeout(begin, 5000); // it opens later than this server
  if (kept) restore();
  $("history-resources").replaceChildren(...known.resources.map((name) => element("option", { value: `${name}/` })));
}

// --- an object

$("history-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [q, namespace] = [$("history-object").value.trim(), $("history-namespace").value.trim()];
  $("history-shown").replaceChildren();
  $("history-found").replaceChildren();
  const found = await question("search", { q, namespace });
  if (!found) return;
  const objects = found.objects;
  const exact = objects.filter((o) => q.endsWith(`/${o.name}`));
  if (objects.length === 1 || exact.length === 1) return versions(exact[0] ?? objects[0]);
  if (objects.length === 0) return problem("The history has never seen such an object.");
  const list = element("ul", { "aria-label": "Objects that were found" }, ...objects.map((o) => element("li", {}, objectButton(o, `${o.resource} ${path(o)}`))));
  $("history-found").replaceChildren(list);
  if (found.more) $("history-found").append(element("p", { class: "help" }, "There are others: name more of it."));
});

function objectButton(o, text) {
  const button = element("button", { type: "button", class: "link" }, text);
  button.addEventListener("click", () => versions(o));
  return button;
}

// versions shows an object. An address that is restored names the versions that are chosen.
async function versions(o, restored) {
  const object = `${o.resource}/${o.name}`;
  const answer = await question("versions", { object, namespace: o.namespace ?? "", cluster: o.cluster });
  if (!answer) return;
  $("history-found").replaceChildren();
  $("history-object").value = object;
  $("history-namespace").value = o.namespace ?? "";
  shown = { object, namespace: o.namespace ?? "", cluster: o.cluster, versions: answer.versions, chosen: [], buttons: answer.versions.map(() => []) };
  const head = element("h3", { tabindex: "-1" }, `${o.resource} ${path(o)}: ${number(answer.versions.length)} version${answer.versions.length === 1 ? "" : "s"}`);
  const pane = element("div", { class: "pane", id: "history-pane" });
  $("history-shown").replaceChildren(head, ...doubts(answer));
  if (answer.earlier) $("history-shown").append(element("p", { class: "soft" }, `${number(answer.earlier)} earlier ones are not shown.`));
  const line = axis();
  $("history-shown").append(line, table(), pane);
  line.scrollLeft = line.scrollWidth;
  head.scrollIntoView({ block: "nearest" });
  head.focus({ preventScroll: true });
  if (!restored) return keepAddress();
  answer.versions.forEach((v, i) => { if (restored.includes(v.resourceVersion)) choose(i, true); });
  const missing = restored.filter((wanted) => !answer.versions.some((v) => v.resourceVersion === wanted));
  if (missing.length) problem(`Not among the versions that are shown: ${missing.join(", ")}.`);
}

// doubts are what may be missing in an answer, and when nobody watched. Of several resources the same is said once.
function doubts(answer) {
  const groups = new Map();
  for (const h of answer.incomplete ?? []) {
    const key = `${h.reason} ${moment(h.since)} ${h.until ? moment(h.until) : ""}`;
    if (!groups.has(key)) groups.set(key, { ...h, resources: [] });
    groups.get(key).resources.push(h.resource);
  }
  const list = [...groups.values()].reverse().map((h) => {
    const when = `${moment(h.since)}${h.until ? ` to ${moment(h.until)}` : ""}`;
    const of = h.resources.length > 1 ? `${number(h.resources.length)} resources` : h.resources[0] ?? "all";
    return h.reason === "unwatched"
      ? element("p", { class: "soft" }, `Not watched: ${when}, ${of}. What changed then became known later: nothing is missing, but times are the latest possible.`)
      : element("p", { class: "problem" }, `May be incomplete: ${when}, ${of}: ${h.what}`);
  });
  const few = 5;
  if (list.length > few) list.splice(few, list.length, element("details", {}, element("summary", {}, `${number(list.length - few)} more`), ...list.slice(few)));
  if (answer.horizon) list.push(element("p", { class: "soft" }, `Kept from ${moment(answer.horizon)} on.`));
  return list;
}

// when is the time of a change: the latest possible one, where nobody watched.
function when(v) {
  if (!v.notBefore) return element("td", { class: "mono" }, moment(v.time));
  return element("td", { class: "mono late", title: `Nobody watched: the change was made between ${moment(v.notBefore)} and ${moment(v.time)}` }, `≤ ${moment(v.time)}`);
}

// who is the manager of a change, or why it is not known.
function who(v) {
  if (v.manager) return element("td", {}, v.manager);
  return element("td", { class: "soft" }, element("abbr", { title: v.managerUnknown ?? "" }, "not recorded"));
}

const describe = (v) => `${v.operation} ${moment(v.time)}${v.manager ? ` by ${v.manager}` : ""}, version ${v.resourceVersion}`;

// axis has a button for each version, in the order of time, and a space as long as the time between two. The buttons never
// cover each other: those of one moment are side by side. One of them is a tab stop; arrows lead to the others.
function axis() {
  const first = Math.max(0, shown.versions.length - onAxis);
  const times = shown.versions.map((v) => Date.parse(v.time));
  const [from, to] = [times[first], times.at(-1)];
  const line = element("div", { class: "axis", role: "group", "aria-label": "Versions in the order of time" });
  for (let i = first; i < times.length; i++) {
    const v = shown.versions[i];
    const button = element("button", { type: "button", class: kinds[v.operation] ?? "", "aria-pressed": "false", "aria-label": describe(v), title: describe(v), tabindex: i === times.length - 1 ? "0" : "-1" }, marks[v.operation] ?? "?");
    button.addEventListener("click", () => choose(i));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const next = step && shown.buttons[i + step]?.[0];
      if (!next) return;
      event.preventDefault();
      button.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
    shown.buttons[i].push(button);
    if (i > first) line.append(space(times[i] - times[i - 1]));
    line.append(button);
  }
  const ends = element("div", { class: "ends" }, element("span", {}, moment(from)), element("span", {}, moment(to) === moment(from) ? "" : moment(to)));
  return element("div", { class: "timescale" }, element("div", {}, line, ends));
}

// space grows with the time, and has a least width that tells a second from a day where the axis scrolls.
function space(milliseconds) {
  const e = element("span");
  const time = Math.max(0, milliseconds);
  e.style.flex = `${time} 0 ${0.15 + 0.3 * Math.log10(1 + time / 1000)}rem`;
  return e;
}

function table() {
  const body = element("tbody");
  for (let i = shown.versions.length - 1; i >= 0; i--) {
    const v = shown.versions[i];
    const button = element("button", { type: "button", "aria-pressed": "false", "aria-label": `Choose ${describe(v)}` }, "Choose");
    button.addEventListener("click", () => choose(i));
    shown.buttons[i].push(button);
    body.append(element("tr", {}, when(v), operation(v), who(v), element("td", { class: "n mono" }, v.resourceVersion), fields(v), element("td", {}, button)));
  }
  return region("Table of versions", "Versions, the newest first", ["Time", "What", "Manager", "Version", "Changed", "Compare"], body);
}

function region(name, caption, columns, body) {
  const head = element("tr", {}, ...columns.map((c) => element("th", { scope: "col", class: c === "Version" ? "n" : "" }, c)));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, element("table", {}, element("caption", { class: "hide" }, caption), element("thead", {}, head), body));
}

function operation(v) {
  const cell = element("td", {}, element("span", { class: `badge ${kinds[v.operation] ?? ""}` }, v.operation));
  if (v.initial) cell.append(" ", element("span", { class: "soft" }, "first list"));
  else if (v.inferred) cell.append(" ", element("span", { class: "soft" }, "by a list"));
  return cell;
}

// fields names what a version changed, short values with it.
function fields(v) {
  const text = (value) => (value === undefined ? "" : JSON.stringify(value));
  const names = (v.changed ?? []).slice(0, maxFields).map((c) => {
    const [a, b] = [text(c.old), text(c.new)];
    return a && b && a.length <= 20 && b.length <= 20 ? `${c.field} ${a} → ${b}` : c.field;
  });
  const more = (v.changed?.length ?? 0) + (v.moreChanged ?? 0) - names.length;
  return element("td", { class: "fields" }, names.join(", ") + (more > 0 ? ` and ${more} more` : ""));
}

// choose presses a version, or releases it. The third one that is chosen takes the place of the first.
function choose(i, restored = false) {
  const chosen = shown.chosen;
  const at = chosen.indexOf(i);
  if (at >= 0) chosen.splice(at, 1);
  else chosen.push(i);
  if (chosen.length > 2) chosen.shift();
  shown.buttons.forEach((buttons, n) => buttons.forEach((b) => b.setAttribute("aria-pressed", String(chosen.includes(n)))));
  const [a, b] = [...chosen].sort((x, y) => x - y);
  $("history-pane").replaceChildren(); // here, since an answer that was overtaken must not empty it
  if (chosen.length === 1) objectAt(shown.versions[a]);
  else if (chosen.length === 2) difference(shown.versions[a], shown.versions[b]);
  if (!restored) keepAddress();
}

const shownObject = () => ({ object: shown.object, namespace: shown.namespace, cluster: shown.cluster });

async function objectAt(v) {
  if (v.operation === "deleted") return $("history-pane").replaceChildren(element("h3", {}, `The object ended: ${describe(v)}`));
  const answer = await question("object", { ...shownObject(), at: v.resourceVersion });
  if (!answer) return;
  const title = element("h3", {}, `As it was: ${describe(v)}`);
  const body = answer.object === undefined ? element("p", { class: "soft" }, `Of the object is known: ${answer.known}.`) : element("pre", { tabindex: "0", "aria-label": `The object in version ${v.resourceVersion}` }, JSON.stringify(answer.object, null, 2));
  $("history-pane").replaceChildren(title, ...doubts(answer), body);
}

async function difference(from, to) {
  if ([from, to].some((v) => v.operation === "deleted")) {
    return $("history-pane").replaceChildren(element("h3", {}, "With one of these versions the object ended: there is nothing to compare."));
  }
  const answer = await question("diff", { ...shownObject(), from: from.resourceVersion, to: to.resourceVersion });
  if (!answer) return;
  const seen = answer.changed.filter((c) => !c.field.startsWith("metadata.managedFields"));
  const body = element("tbody", {}, ...seen.map((c) => element("tr", {}, element("th", { scope: "row", class: "fields" }, c.field), ...values(c))));
  const title = element("h3", {}, `From ${describe(from)} to ${describe(to)}`);
  const what = seen.length ? region("Table of differences", "What differs between the two versions", ["Field", "Old", "New"], body) : element("p", { class: "soft" }, "No difference.");
  $("history-pane").replaceChildren(title, what);
}

// values are the cells of a difference: texts of several lines are compared line by line, in one cell for both.
function values(c) {
  const both = [c.old, c.new];
  const texts = both.every((v) => v === undefined || typeof v === "string") && both.some((v) => v?.includes("\n"));
  const lines = texts ? differences(c.old, c.new) : null;
  if (lines) {
    const kind = { "−": "bad", "+": "good", " ": "same", "…": "same" };
    const text = element("pre", { class: "lines", tabindex: "0", "aria-label": `Lines of ${c.field}` }, ...fold(lines).map(([sign, line]) => element("span", { class: kind[sign] }, `${sign} ${line}`)));
    return [element("td", { class: "value", colspan: "2" }, text)];
  }
  const value = (v, sign, kind) => element("td", { class: "value" }, ...(v === undefined ? [element("span", { class: "soft" }, "none")] : [element("pre", { class: kind }, `${sign} ${JSON.stringify(v, null, 2)}`)]));
  return [value(c.old, "−", "bad"), value(c.new, "+", "good")];
}

// --- a namespace

const page = 200; // rows that are asked for at a time
const classes = { status: "status only", derived: "Events and Endpoints", child: "of children" };

$("timeline-form").addEventListener("submit", (event) => {
  event.preventDefault();
  timeline({ ns: $("history-namespace").value.trim(), since: $("timeline-since").value, all: $("timeline-noise").checked });
});

// timeline shows what happened, the newest first.
async function timeline(asked, restored = false) {
  const more = { namespace: asked.ns, since: `${asked.since} ago`, order: "newest", limit: page };
  if (!asked.all) more.hide = Object.keys(classes).join();
  const answer = await question("timeline", more);
  if (!answer) return;
  shown = null;
  if (!restored) setAddress(`#/timeline?${new URLSearchParams({ ns: asked.ns, since: asked.since, ...(asked.all && { all: "1" }) })}`);
  $("history-found").replaceChildren();
  const title = element("h3", { tabindex: "-1" }, `Timeline of ${asked.ns || "all namespaces"}, the last ${asked.since}`);
  const count = element("p", { role: "status" });
  const body = element("tbody");
  const button = element("button", { type: "button" }, "Show older changes");
  const hidden = {};
  const add = (next) => {
    body.append(...next.changes.map((c) => element("tr", {}, when(c), operation(c), element("td", {}, c.resource), element("td", {}, objectButton(c, path(c))), who(c), fields(c))));
    for (const [name, n] of Object.entries({ ...next.hidden, ...(next.heartbeats && { heartbeats: next.heartbeats }) })) hidden[name] = (hidden[name] ?? 0) + n;
    const left = Object.entries(hidden).map(([name, n]) => `${number(n)} ${classes[name] ?? name}`);
    show(count, `${number(body.rows.length)} change${body.rows.length === 1 ? "" : "s"}${next.more ? " so far" : ""}${left.length ? `; hidden: ${left.join(", ")}` : ""}.`);
    button.hidden = !next.more;
    button.dataset.before = next.next ?? "";
  };
  button.addEventListener("click", async () => {
    const next = await question("timeline", { ...more, before: button.dataset.before });
    if (next) add(next);
  });
  add(answer);
  const table = region("Table of the timeline", "What happened, the newest first", ["Time", "What", "Resource", "Object", "Manager", "Changed"], body);
  $("history-shown").replaceChildren(title, count, ...doubts(answer), ...(answer.changes.length ? [table] : []), element("p", { class: "more" }, button));
  title.focus({ preventScroll: true });
}

// --- the address of what is shown

let own = ""; // the address that this page has set itself

function setAddress(hash) {
  own = hash;
  if (location.hash !== hash) history.pushState(null, "", hash);
}

// keepAddress puts the shown object and the chosen versions into the address.
function keepAddress() {
  const [kind, name] = shown.object.split("/");
  const chosen = [...shown.chosen].sort((a, b) => a - b).map((i) => shown.versions[i].resourceVersion);
  const query = new URLSearchParams({ ...(shown.cluster && { cluster: shown.cluster }), ...(chosen.length && { v: chosen.join() }) });
  setAddress(`#/object/${[kind, shown.namespace, name].map(encodeURIComponent).join("/")}?${query}`);
}

// restore shows what the address says: after a load, Back, or a link. It leaves the address as it is: another entry would
// make Back lead to the same view again.
async function restore() {
  if (location.hash === own) return;
  own = location.hash;
  if (own === "") return $("history-shown").replaceChildren();
  if (!own.startsWith("#/")) return; // a link to a part of the page
  const [where, query = ""] = own.slice(2).split("?");
  const [kind, ...parts] = where.split("/");
  const asked = new URLSearchParams(query);
  if (kind === "timeline") {
    const [ns, since] = [asked.get("ns") ?? "", asked.get("since") ?? "1h"];
    $("history-namespace").value = ns;
    if ([...$("timeline-since").options].some((o) => o.value === since)) $("timeline-since").value = since;
    $("timeline-noise").checked = asked.has("all");
    await timeline({ ns, since, all: asked.has("all") }, true);
  } else if (kind === "object" && parts.length === 3) {
    const [resource, namespace, name] = parts.map(decoded);
    await versions({ resource, namespace, name, cluster: asked.get("cluster") ?? "" }, (asked.get("v") ?? "").split(",").filter(Boolean));
  } else return problem(`The address is not one of this page: ${own}`);
  $("history").scrollIntoView({ block: "start" });
}

// decoded is a part of an address; one that is not encoded well is taken as it is.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

addEventListener("popstate", restore);
document.addEventListener("admitted", begin);
begin();
