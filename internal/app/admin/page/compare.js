// Compare: what is different in a namespace between two times, whatever happened between.

import { button, element, number, plural, question, shortName } from "./base.js";
import { short } from "./detail.js";
import { hatchesOf, holesOf, noteOf } from "./lanes.js";
import { iso, moment, parse, span } from "./time.js";

let context;
let parts = {};
let turn = 0;

export function enter(view, given) {
  context = given;
  parts = { ns: element("input", { id: "compare-ns", list: "namespaces", autocomplete: "off", spellcheck: "false", placeholder: "all" }), a: element("input", { id: "compare-a", autocomplete: "off", spellcheck: "false" }), b: element("input", { id: "compare-b", autocomplete: "off", spellcheck: "false" }), sum: element("p", { class: "sum", id: "compare-sum", role: "status" }), found: element("div", { id: "compare-found" }) };
  const field = (name, control) => element("label", { class: "field" }, element("span", {}, name), control);
  const form = element("form", { class: "bar", "aria-label": "Two times" }, field("namespace", parts.ns), field("A", parts.a), field("B", parts.b), element("button", { type: "submit" }, "Compare"), button("Copy link", {}, () => context.copyLink()));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    context.set({ ns: parts.ns.value.trim(), a: absolute(parts.a.value.trim()), b: absolute(parts.b.value.trim()) });
  });
  view.replaceChildren(form, element("datalist", { id: "namespaces" }), parts.sum, parts.found);
  learned();
}

export function learned() {
  document.getElementById("namespaces")?.replaceChildren(...(context.known()?.namespaces ?? []).map((n) => element("option", { value: n })));
}

// absolute is a time for the address: what is relative stays.
function absolute(text) {
  if (!text || text === "now" || span(text)) return text;
  const time = parse(text);
  return Number.isNaN(time) ? text : iso(time);
}

// shown is a time of the address as text, and asked what the bridge is asked.
const shown = (text) => (text === "now" || span(text) ? text : moment(Date.parse(text)) || text);
const asked = (text) => (text === "now" ? "" : span(text) ? `${text} ago` : text);

export async function show(r) {
  const mine = ++turn;
  const [ns, a, b] = [r.query.get("ns") ?? "", r.query.get("a") ?? "30m", r.query.get("b") ?? "now"];
  [parts.ns.value, parts.a.value, parts.b.value] = [ns, shown(a), shown(b)];
  try {
    const answer = await question("compare", { namespace: ns, a: asked(a), b: asked(b) });
    if (mine !== turn) return;
    draw(answer, ns);
  } catch (error) {
    if (mine !== turn) return;
    parts.sum.textContent = "";
    parts.found.replaceChildren(element("p", { class: "problem", role: "alert" }, error.message));
  }
}

const signs = { added: "+", updated: "~", deleted: "×" };

function draw(answer, ns) {
  const count = (op) => answer.objects.filter((o) => o.operation === op).length;
  parts.sum.textContent = `${moment(answer.a)} to ${moment(answer.b)}: ${number(count("updated"))} changed, ${number(count("added"))} added, ${number(count("deleted"))} deleted${answer.same ? `; ${plural(answer.same, "object")} changed and ${answer.same === 1 ? "is" : "are"} as before` : ""}${answer.children ? `; ${number(answer.children)} of children hidden` : ""}${answer.more ? "; there are more: choose a namespace or a shorter time" : ""}`;
  const notes = hatchesOf(holesOf(answer)).slice(0, 3).map(noteOf);
  const to = (o) => context.addressOf(o, o.to ? (o.from ? { v: o.to, vs: o.from } : { v: o.to }) : {});
  const rows = answer.objects.map((o) => element("li", {}, element("span", { class: `sign ${o.operation}`, "aria-hidden": "true" }, signs[o.operation]), element("span", {}, element("a", { class: "plain strong", href: to(o) }, shortName(o)), ns ? "" : element("span", { class: "soft" }, ` ${o.namespace ?? ""}`)), element("span", { class: "change" }, o.recreated ? "recreated, " : "", short({ ...o, changed: o.changed ?? [] })),
    element("span", { class: "soft count" }, plural(o.changes, "version"))));
  parts.found.replaceChildren(...notes, rows.length ? element("section", {}, element("ul", { class: "compared", "aria-label": "What is different" }, ...rows)) : element("p", { class: "help" }, "Nothing is different."));
}
