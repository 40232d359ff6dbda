// What differs between two versions of an object, for people: managedFields hidden, texts line by line, what is the same
// folded, and against nothing where the object was created or deleted.

import { button, element, question } from "./base.js";
import { differences, fold } from "./lines.js";
import { moment } from "./time.js";

// plain texts need no quotes in YAML.
const isPlain = (text) => /^[A-Za-z_/.](?:[\w\-./ ()@+]|:(?=\S))*$/.test(text) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(text) && !/\s$/.test(text);

function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  return isPlain(value) ? value : JSON.stringify(value);
}

const isEmpty = (value) => (Array.isArray(value) ? value.length === 0 : Object.keys(value).length === 0);

// yaml is a value as lines of YAML.
export function yaml(value, indent = "") {
  if (value === undefined) return [];
  if (value === null || typeof value !== "object") {
    if (typeof value === "string" && value.includes("\n")) return value.replace(/\n$/, "").split("\n").map((line) => indent + line);
    return [indent + scalar(value)];
  }
  if (isEmpty(value)) return [indent + (Array.isArray(value) ? "[]" : "{}")];
  if (Array.isArray(value)) {
    return value.flatMap((item) => {
      const lines = yaml(item, `${indent}  `);
      lines[0] = `${indent}- ${lines[0].slice(indent.length + 2)}`;
      return lines;
    });
  }
  return Object.entries(value).flatMap(([key, item]) => {
    const name = indent + (isPlain(key) || /^[\w.\-/]+$/.test(key) ? key : JSON.stringify(key));
    if (typeof item === "string" && item.includes("\n")) return [`${name}: |`, ...yaml(item, `${indent}  `)];
    if (item === null || typeof item !== "object" || isEmpty(item)) return [`${name}: ${yaml(item)[0]}`];
    return [`${name}:`, ...yaml(item, Array.isArray(item) ? indent : `${indent}  `)];
  });
}

// readable is an object without what the API server notes for itself.
export function readable(object) {
  if (!object?.metadata) return object;
  const { managedFields, ...metadata } = object.metadata;
  return { ...object, metadata };
}

const kinds = { "−": "bad", "+": "good", " ": "same", "…": "same" };
const marked = (label, lines) => element("pre", { class: "lines", tabindex: "0", "aria-label": label }, ...lines.map(([sign, line]) => element("span", { class: kinds[sign] }, `${sign} ${line}`)));

// linesOf compares two values line by line.
function linesOf(label, old, now) {
  const [a, b] = [yaml(old), yaml(now)];
  const lines = differences(a, b) ?? [...a.map((line) => ["−", line]), ...b.map((line) => ["+", line])];
  return marked(label, fold(lines));
}

const isBookkeeping = (field) => field.startsWith("metadata.managedFields") || field === "metadata.generation" || field === "metadata.resourceVersion" || field.endsWith(".observedGeneration");
export const isStatus = (field) => field === "status" || field.startsWith("status.");

// isStatusOnly reports whether a version changed nothing else.
export const isStatusOnly = (v) => v.operation === "updated" && (v.changed ?? []).length > 0 && v.changed.every((c) => isStatus(c.field) || isBookkeeping(c.field) || (v.manager?.endsWith("/status") && c.field.startsWith("metadata.annotations")));

// short says what a change was, in a few words.
export function short(c) {
  if (c.operation === "added") return c.initial ? "there at the first list" : "added";
  if (c.operation === "deleted") return "deleted";
  const text = (value) => (value === undefined ? undefined : typeof value === "object" && value ? contentOf(value) : String(value));
  const seen = (c.changed ?? []).filter((f) => !isBookkeeping(f.field));
  const list = (seen.some((f) => !isStatus(f.field)) ? seen.filter((f) => !isStatus(f.field)) : seen).slice(0, 3).map((f) => {
    const leaf = leafOf(f.field);
    const [a, b] = [text(f.old), text(f.new)];
    if (f.omitted) return `${leaf} changed`;
    if (a === undefined) return `${leaf} ${b === undefined ? "" : `+${b}`}`.trim();
    if (b === undefined) return `${leaf} removed`;
    return `${leaf} ${a} → ${b}`;
  });
  const more = seen.length + (c.moreChanged ?? 0) - list.length;
  return list.join(", ") + (more > 0 && list.length ? ` and ${more} more` : "") || "no field that counts";
}

// contentOf names what is in a list or an object: its items or its keys.
function contentOf(value) {
  const names = Array.isArray(value) ? value.map((item) => item?.name ?? (typeof item === "object" ? "…" : item)) : Object.keys(value);
  return names.slice(0, 3).join(", ") + (names.length > 3 ? ", …" : "");
}

// leafOf is the last part of a field that a person knows it by: containers[web].image.
function leafOf(field) {
  const inBrackets = /\[([^\]]+)\]$/.exec(field);
  if (inBrackets) return inBrackets[1];
  return field.split(".").slice(-1)[0];
}

// who is the user of a change as the audit log has it, with the manager, and whose change a controller has carried out; or why it is not known.
export function who(v) {
  const user = v.actor?.user;
  if (user) {
    const how = [v.actor.impersonator && `${v.actor.impersonator} acted`, v.actor.verb, v.actor.subresource, v.actor.userAgent, v.actor.grade].filter(Boolean).join(", ");
    const cause = v.initiator;
    const change = cause && element("abbr", { title: `${cause.resource}/${cause.name}, version ${cause.resourceVersion}` }, cause.actor.user);
    return element("span", {}, "by ", element("abbr", { title: how }, user), v.manager ? ` with ${v.manager}` : "", change && " for ", change);
  }
  const why = v.actor?.unknown ? `user: ${v.actor.unknown}` : "";
  if (v.manager) return element("span", why ? { title: why } : {}, `by ${v.manager}`);
  return element("span", { class: "soft" }, "who: ", element("abbr", { title: why || v.managerUnknown || "the API server did not record it" }, "not recorded"));
}

// late is the time of a change: the latest possible one, where there was no watch.
export function when(v, format = moment) {
  if (!v.notBefore) return format(v.time);
  return `≤ ${format(v.time)}`;
}

// difference fills an element with what a version changed, or what differs between two.
export async function difference(box, o, to, { from, mode = "fields", hideStatus = false, signal, onMode, isTitled = false } = {}) {
  const object = { object: `${o.resource}/${o.name}`, namespace: o.namespace ?? "", cluster: o.cluster };
  const answer = await question("diff", { ...object, to, from }, signal);
  const whole = answer.changed.length === 1 && answer.changed[0].field === "";
  const versions = answer.from ? `version ${answer.from.resourceVersion} → ${answer.to.resourceVersion}` : `version ${answer.to.resourceVersion}, against nothing`;
  const head = isTitled && answer.from ? "" : element("span", { class: "soft" }, versions);
  const modes = onMode && element("span", { class: "modes", role: "group", "aria-label": "How the difference is shown" }, ...["fields", "yaml", "whole"].map((m) => button(m === "yaml" ? "YAML" : m, { "aria-pressed": String(m === mode) }, () => onMode(m))));
  const parts = [element("p", { class: "row" }, modes, head)];
  if (mode === "fields" && !whole) {
    const all = answer.changed.filter((c) => !isBookkeeping(c.field));
    const seen = hideStatus && all.some((c) => !isStatus(c.field)) ? all.filter((c) => !isStatus(c.field)) : all;
    for (const c of seen) parts.push(element("h3", {}, c.field), linesOf(`Lines of ${c.field}`, c.old, c.new));
    if (seen.length === 0) parts.push(element("p", {}, "No difference but what the API server notes for itself (managedFields, generation)."));
    if (seen.length < all.length) parts.push(element("p", { class: "soft" }, `${all.length - seen.length} of the status hidden`));
  } else {
    const [old, now] = whole ? [answer.changed[0].old, answer.changed[0].new] : await bodies(object, answer, signal);
    const [a, b] = [readable(old), readable(now)];
    if (mode === "whole") parts.push(element("pre", { tabindex: "0", "aria-label": `The object in version ${answer.to.resourceVersion}` }, yaml(b ?? a).join("\n")));
    else parts.push(linesOf("The object, line by line", a, b));
  }
  box.replaceChildren(...parts);
  return answer;
}

// bodies are both objects of a difference.
async function bodies(object, answer, signal) {
  const at = (v) => (v && v.operation !== "deleted" ? question("object", { ...object, at: v.resourceVersion }, signal).then((s) => s.object) : undefined);
  return Promise.all([at(answer.from), at(answer.to)]);
}
