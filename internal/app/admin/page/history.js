// The history view: what an object was, what differs between two versions, and what happened in a namespace. It asks
// /history only when somebody looks.

import { $, ask, element, kinds, number, said, show } from "/page.js";

const marks = { added: "+", updated: "~", deleted: "−", synced: "=" };
const onAxis = 200; // versions
const maxFields = 4; // that a row names

let known = null; // what /history/resources has said
let shown = null; // the object that is shown: its versions, and the chosen ones
let turn = 0; // of the newest question: an answer that comes late is not shown

const moment = (time) => new Date(time).toLocaleString("sv-SE"); // 2026-11-22 14:03:07
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

async function versions(o) {
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
  $("history-shown").append(axis(), table(), pane);
  head.scrollIntoView({ block: "nearest" });
  head.focus({ preventScroll: true });
}

// doubts are what may be missing in an answer.
function doubts(answer) {
  const list = (answer.incomplete ?? []).slice(-5).map((h) => element("p", { class: "problem" }, `May be incomplete: ${h.what}, ${moment(h.since)}${h.until ? ` to ${moment(h.until)}` : ""}`));
  if (answer.horizon) list.push(element("p", { class: "soft" }, `Kept from ${moment(answer.horizon)} on.`));
  return list;
}

const describe = (v) => `${v.operation} ${moment(v.time)}${v.manager ? ` by ${v.manager}` : ""}, version ${v.resourceVersion}`;

// axis has a button for each version, where its time is. One of them is a tab stop; arrows lead to the others.
function axis() {
  const first = Math.max(0, shown.versions.length - onAxis);
  const times = shown.versions.map((v) => Date.parse(v.time));
  const [from, to] = [times[first], times.at(-1)];
  const line = element("div", { class: "axis", role: "group", "aria-label": "Versions in the order of time" });
  for (let i = first; i < times.length; i++) {
    const v = shown.versions[i];
    const button = element("button", { type: "button", class: kinds[v.operation] ?? "", "aria-pressed": "false", "aria-label": describe(v), title: describe(v), tabindex: i === times.length - 1 ? "0" : "-1" }, marks[v.operation] ?? "?");
    button.style.left = `${to > from ? ((times[i] - from) * 100) / (to - from) : 50}%`;
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
    line.append(button);
  }
  return element("div", {}, line, element("div", { class: "ends" }, element("span", {}, moment(from)), element("span", {}, to > from ? moment(to) : "")));
}

function table() {
  const body = element("tbody");
  for (let i = shown.versions.length - 1; i >= 0; i--) {
    const v = shown.versions[i];
    const button = element("button", { type: "button", "aria-pressed": "false", "aria-label": `Choose ${describe(v)}` }, "Choose");
    button.addEventListener("click", () => choose(i));
    shown.buttons[i].push(button);
    body.append(element("tr", {}, element("td", { class: "mono" }, moment(v.time)), operation(v), element("td", {}, v.manager ?? ""), element("td", { class: "n mono" }, v.resourceVersion), fields(v), element("td", {}, button)));
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
function choose(i) {
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
}

const who = () => ({ object: shown.object, namespace: shown.namespace, cluster: shown.cluster });

async function objectAt(v) {
  if (v.operation === "deleted") return $("history-pane").replaceChildren(element("h3", {}, `The object ended: ${describe(v)}`));
  const answer = await question("object", { ...who(), at: v.resourceVersion });
  if (!answer) return;
  const title = element("h3", {}, `As it was: ${describe(v)}`);
  const body = answer.object === undefined ? element("p", { class: "soft" }, `Of the object is known: ${answer.known}.`) : element("pre", { tabindex: "0", "aria-label": `The object in version ${v.resourceVersion}` }, JSON.stringify(answer.object, null, 2));
  $("history-pane").replaceChildren(title, ...doubts(answer), body);
}

async function difference(from, to) {
  if ([from, to].some((v) => v.operation === "deleted")) {
    return $("history-pane").replaceChildren(element("h3", {}, "With one of these versions the object ended: there is nothing to compare."));
  }
  const answer = await question("diff", { ...who(), from: from.resourceVersion, to: to.resourceVersion });
  if (!answer) return;
  const value = (v, sign, kind) => element("td", { class: "value" }, ...(v === undefined ? [element("span", { class: "soft" }, "none")] : [element("pre", { class: kind }, `${sign} ${JSON.stringify(v, null, 2)}`)]));
  const body = element("tbody", {}, ...answer.changed.map((c) => element("tr", {}, element("th", { scope: "row", class: "fields" }, c.field), value(c.old, "−", "bad"), value(c.new, "+", "good"))));
  const title = element("h3", {}, `From ${describe(from)} to ${describe(to)}`);
  const what = answer.changed.length ? region("Table of differences", "What differs between the two versions", ["Field", "Old", "New"], body) : element("p", { class: "soft" }, "No difference.");
  $("history-pane").replaceChildren(title, what);
}

// --- a namespace

$("timeline-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const namespace = $("history-namespace").value.trim();
  const answer = await question("timeline", { namespace, since: `${$("timeline-since").value} ago`, heartbeats: $("timeline-heartbeats").checked });
  if (!answer) return;
  shown = null;
  $("history-found").replaceChildren();
  const body = element("tbody", {}, ...answer.changes.map((c) => element("tr", {}, element("td", { class: "mono" }, moment(c.time)), operation(c), element("td", {}, c.resource), element("td", {}, objectButton(c, path(c))), element("td", {}, c.manager ?? ""), fields(c))));
  const title = element("h3", { tabindex: "-1" }, `Timeline of ${namespace || "all namespaces"}: ${number(answer.changes.length)} changes`);
  const notes = doubts(answer);
  if (answer.more) notes.push(element("p", { class: "soft" }, "There is more: choose a shorter time, or ask with bridge timeline."));
  if (answer.heartbeats) notes.push(element("p", { class: "soft" }, `${number(answer.heartbeats)} heartbeats are left out.`));
  const what = answer.changes.length ? region("Table of the timeline", "What happened, the oldest first", ["Time", "What", "Resource", "Object", "Manager", "Changed"], body) : element("p", { class: "soft" }, "Nothing happened.");
  $("history-shown").replaceChildren(title, ...notes, what);
  title.focus({ preventScroll: true });
});

document.addEventListener("admitted", begin);
begin();
