// What all views share: elements, numbers, and how the bridge is asked. Text goes into the page as text, never as markup.

export const $ = (id) => document.getElementById(id);

// element makes one: element("td", {class: "n"}, "3", otherElement).
export function element(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined && value !== false) e.setAttribute(key, value === true ? "" : value);
  e.append(...children.filter((c) => c !== undefined && c !== null && c !== false));
  return e;
}

// show puts text and a class into an element, only when they changed: so that a screen reader does not read it twice.
export function show(e, text, kind) {
  if (e.textContent !== text) e.textContent = text;
  if (kind !== undefined && e.className !== kind) e.className = kind;
}

export const number = (n) => Number(n ?? 0).toLocaleString("en-US");
export const plural = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1023.95 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 ? n : n.toFixed(1)} ${units[i]}`;
}

export function duration(seconds) {
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d`;
}

// button makes one that does something.
export function button(text, attributes, act) {
  const e = element("button", { type: "button", ...attributes }, text);
  e.addEventListener("click", act);
  return e;
}

// shortKinds are the names that kubectl has for the kinds of every cluster.
const shortKinds = {
  "deployments.apps": "deploy", "replicasets.apps": "rs", "statefulsets.apps": "sts", "daemonsets.apps": "ds", pods: "po", services: "svc", configmaps: "cm",
  serviceaccounts: "sa", namespaces: "ns", nodes: "no", persistentvolumeclaims: "pvc", persistentvolumes: "pv", "cronjobs.batch": "cj", "jobs.batch": "job",
  "ingresses.networking.k8s.io": "ing", "horizontalpodautoscalers.autoscaling": "hpa", secrets: "secret",
};
export const shortKind = (resource) => shortKinds[resource] ?? resource.split(".")[0];
export const shortName = (o) => `${shortKind(o.resource)}/${o.name}`;
export const path = (o) => (o.namespace ? `${o.namespace}/${o.name}` : o.name);

// --- what shows the cluster needs a token, unless the browser runs as the bridge's own user.

// The token is kept for this tab only, until it is closed, and for as long as the bridge takes it.
const kept = "bridge-token";
const token = { get: () => sessionStorage.getItem(kept), set: (value) => sessionStorage.setItem(kept, value), drop: () => sessionStorage.removeItem(kept) };

// ask returns null when the bridge refuses to answer; the page then shows why. A path has no "/" before it: the page may be
// behind a proxy with a path of its own.
export async function ask(what, signal) {
  const headers = { Accept: "application/json" };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const response = await fetch(what, { headers, cache: "no-store", credentials: "omit", signal });
  if (![401, 403].includes(response.status)) {
    $("access").hidden = true;
    return response;
  }
  if (response.status === 401) token.drop();
  $("access").hidden = false;
  show($("access-why"), await reason(response));
  $("access-form").hidden = response.status !== 401;
  document.dispatchEvent(new Event("refused"));
  return null;
}

// reason is why a response is no answer.
export async function reason(response) {
  const text = (await response.text()).trim();
  try { return JSON.parse(text).error ?? text; } catch { return text; }
}

$("access-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set($("access-token").value);
  $("access-token").value = "";
  $("access").hidden = true;
  document.dispatchEvent(new Event("admitted"));
});

// clusterOf is the cluster that the address names, of several that the history has. None is the bridge's own.
export const clusterOf = () => new URLSearchParams(location.hash.split("?")[1] ?? "").get("cluster") ?? undefined;

// addressTo is the address of a view, for the same cluster.
export function addressTo(where, query = {}) {
  const text = new URLSearchParams(Object.entries({ ...query, cluster: query.cluster ?? clusterOf() }).filter(([, value]) => value)).toString();
  return `#/${where}${text ? `?${text}` : ""}`;
}

// question asks the history. It throws what is wrong, as text for a person.
export async function question(name, parameters, signal) {
  const given = Object.entries({ ...parameters, cluster: parameters.cluster ?? clusterOf() }).filter(([, value]) => value !== undefined && value !== "");
  const response = await ask(`history/${name}?${new URLSearchParams(given)}`, signal);
  if (!response) throw new Error("Not allowed: the page asks for a token above.");
  if (!response.ok) throw new Error(await reason(response));
  return response.json();
}
