// Times: every one that is shown has its zone.

import { $ } from "./base.js";

const kept = "bridge-zone";
export const isLocal = () => $("zone").value === "local";
try { if (localStorage.getItem(kept) === "local") $("zone").value = "local"; } catch { /* a browser that keeps nothing */ }
$("zone").addEventListener("change", () => {
  try { localStorage.setItem(kept, $("zone").value); } catch { /* as above */ }
  document.dispatchEvent(new Event("zone"));
});

const two = (n) => String(n).padStart(2, "0");

// offset is "Z", or "+05:30" of the browser's zone at a time.
function offset(date) {
  const minutes = -date.getTimezoneOffset();
  const abs = Math.abs(minutes);
  return minutes === 0 ? "Z" : `${minutes < 0 ? "-" : "+"}${two(Math.floor(abs / 60))}:${two(abs % 60)}`;
}

// moment is a date and a time: 2026-11-22 14:03:07Z.
export function moment(time) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return "";
  if (!isLocal()) return `${date.toISOString().slice(0, 19).replace("T", " ")}Z`;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}${offset(date)}`;
}

// clock is a moment of today without the date.
export function clock(time) {
  const text = moment(time);
  return text.slice(0, 10) === moment(Date.now()).slice(0, 10) ? text.slice(11) : text;
}

// range is two times: the second one without the date of the first.
export function range(from, to, first = clock) {
  const [a, b] = [moment(from), moment(to)];
  return `${first(from)} – ${a.slice(0, 10) === b.slice(0, 10) ? b.slice(11) : b}`;
}

// parse is the time that a person typed, in milliseconds: 14:03 is of today, and without a zone it is in the one that is shown.
export function parse(text) {
  const found = /^(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|[+-]\d\d:\d\d)?$/i.exec(text.trim());
  return found ? Date.parse(`${found[1] ?? moment(Date.now()).slice(0, 10)}T${found[2]}${found[3] ?? (isLocal() ? "" : "Z")}`) : NaN;
}

const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

const shiftOf = (time) => (isLocal() ? new Date(time).getTimezoneOffset() * 60000 : 0);

// ticks are round times of a window, at most so many, as [milliseconds, text]. A day has 23 or 25 hours where the clocks change,
// so steps of several hours are counted by the clock of the zone.
export function ticks(from, to, most) {
  const step = (steps.find((s) => (to - from) / 1000 / s <= most) ?? steps.at(-1)) * 1000;
  const list = [];
  for (let round = Math.ceil((from - shiftOf(from)) / step) * step; ; round += step) {
    const time = round + shiftOf(step > 3600000 ? round + shiftOf(round) : from);
    if (!(time <= to)) return list;
    const text = moment(time);
    const zone = text.slice(19);
    if (time >= from) list.push([time, step % 86400000 === 0 ? text.slice(5, 10) : `${to - from > 86400000 ? text.slice(5, 11) : ""}${text.slice(11, step % 60000 === 0 ? 16 : 19)}${zone}`]);
  }
}

const units = { m: 60, h: 3600, d: 86400 };

// span is a window in seconds: "30m".
export function span(text) {
  const found = /^(\d+)([mhd])$/.exec(text ?? "");
  return found ? Number(found[1]) * units[found[2]] : 0;
}

// windowOf is [from, to] in milliseconds of what an address says: from and to, or since, which is relative to now.
export function windowOf(query) {
  const [from, to] = [Date.parse(query.get("from")), Date.parse(query.get("to"))];
  if (from < to) return [from, to];
  const now = Date.now();
  return [now - (span(query.get("since")) || 1800) * 1000, now];
}

export const isFixed = (query) => Date.parse(query.get("from")) < Date.parse(query.get("to"));
export const iso = (time) => new Date(time).toISOString();
