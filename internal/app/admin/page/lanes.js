// The drawing of a time: marks, bars of existence, hatches. The names beside it are elements; the canvas adds nothing that
// is not in the list below it.

import { element } from "./base.js";
import { clock, range, ticks } from "./time.js";

// colors are read from the style sheet, so that light and dark have their own.
function colors() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return { line: read("--line"), bar: read("--bar"), exist: read("--exist"), good: read("--good"), bad: read("--bad"), warn: read("--warn"), soft: read("--soft"), text: read("--text"), hatch: read("--hatch"), card: read("--card"), hit: read("--hit"), idle: read("--idle-bg") };
}

// open prepares a canvas of a size in CSS pixels.
function open(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const c = canvas.getContext("2d");
  c.scale(scale, scale);
  return c;
}

// hatch draws times in which changes may be missing (full), or became known late (light).
function hatch(c, scale, hatches, top, height, color) {
  for (const h of hatches) {
    const [a, b] = [scale.x(h.from), Math.max(scale.x(h.to), scale.x(h.from) + 3)];
    if (b < 0 || a > scale.width) continue;
    c.save();
    c.beginPath();
    c.rect(a, top, b - a, height);
    c.clip();
    c.fillStyle = color.hatch;
    c.fillRect(a, top, b - a, height);
    c.globalAlpha = h.full ? 0.55 : 0.35;
    c.strokeStyle = color.warn;
    c.lineWidth = h.full ? 1.2 : 0.8;
    const step = h.full ? 7 : 13;
    c.beginPath();
    // a stroke goes on from row to row
    for (let x = Math.floor((a - height - top) / step) * step - top; x < b; x += step) {
      c.moveTo(x, top + height);
      c.lineTo(x + height, top);
    }
    c.stroke();
    c.restore();
  }
}

// background shows where nothing was watched yet, and round times.
function background(c, scale, height, color) {
  const begins = Math.min(scale.x(scale.begins), scale.width);
  if (begins > 0) {
    c.fillStyle = color.idle;
    c.fillRect(0, 0, begins, height);
  }
  c.fillStyle = color.line;
  for (const [time] of scale.ticks) c.fillRect(Math.round(scale.x(time)), 0, 1, height);
}

// mark draws the shape of a change: shapes differ, not only colours. A late one is hollow.
function mark(c, kind, x, y, color, r) {
  const late = "AUD".includes(kind);
  const shape = { A: "+", U: "~", D: "-" }[kind] ?? kind;
  c.lineWidth = 2;
  c.beginPath();
  if (shape === "+") {
    c.moveTo(x - r, y - r);
    c.lineTo(x + r, y);
    c.lineTo(x - r, y + r);
    c.closePath();
    c.fillStyle = c.strokeStyle = color.good;
  } else if (shape === "-") {
    c.moveTo(x - r, y - r);
    c.lineTo(x + r, y + r);
    c.moveTo(x + r, y - r);
    c.lineTo(x - r, y + r);
    c.strokeStyle = color.bad;
    c.setLineDash(late ? [3, 2] : []);
    c.stroke();
    return c.setLineDash([]);
  } else if (shape === "!") {
    c.moveTo(x, y - r);
    c.lineTo(x + r, y + r);
    c.lineTo(x - r, y + r);
    c.closePath();
    c.fillStyle = c.strokeStyle = color.bad;
  } else {
    c.arc(x, y, r - 1, 0, 7);
    c.fillStyle = c.strokeStyle = color.bar;
  }
  if (late) {
    c.fillStyle = color.card;
    c.fill();
    return c.stroke();
  }
  c.fill();
}

// existence draws from when to when an object was there.
function existence(c, lane, y, scale, color) {
  let from = lane.existed ? 0 : -1;
  const bar = (a, b) => c.fillRect(a, y - 3, Math.max(b - a, 1), 6);
  c.fillStyle = color.exist;
  for (const [time, kind] of lane.points ?? []) {
    const x = scale.x(time);
    if (kind === "-" || kind === "D") {
      if (from >= 0) bar(from, x);
      from = -1;
    } else if (from < 0) from = Math.max(0, x);
  }
  if (lane.buckets && from < 0) from = (lane.buckets[0][0] / scale.buckets) * scale.width;
  if (from >= 0) bar(from, scale.x(scale.now));
}

function buckets(c, list, y, height, scale, color, own) {
  const top = Math.max(1, ...list.map((b) => b[1]));
  const width = Math.max(2, scale.width / scale.buckets - 1);
  for (const [i, count, failures] of list) {
    const tall = Math.max(3, (height * Math.log1p(count)) / Math.log1p(top));
    c.fillStyle = failures ? color.bad : own ? color.bar : color.soft;
    c.fillRect((i / scale.buckets) * scale.width, y + height - tall, width, tall);
  }
}

// scaleOf maps times to places. begins is when something began to be watched, where that is known.
export function scaleOf(from, to, width, count, begins = from) {
  return { x: (time) => ((time - from) / (to - from)) * width, time: (x) => from + (x / width) * (to - from), width, buckets: count, now: Math.min(Date.now(), to), begins, ticks: ticks(from, to, Math.max(2, Math.floor(width / 110))) };
}

// drawHistogram draws how much happened when.
export function drawHistogram(canvas, histogram, hatches, scale, height) {
  const [c, color] = [open(canvas, scale.width, height), colors()];
  background(c, scale, height, color);
  hatch(c, scale, hatches, 0, height, color);
  buckets(c, histogram.map((n, i) => [i, n, 0]).filter((b) => b[1]), 2, height - 18, scale, color, true);
  c.font = "11px ui-monospace, monospace";
  c.textBaseline = "bottom";
  c.fillStyle = color.soft;
  for (const [time, text] of scale.ticks) {
    const x = scale.x(time) + 4;
    if (x + c.measureText(text).width < scale.width) c.fillText(text, x, height - 1);
  }
  const begins = Math.min(scale.x(scale.begins), scale.width);
  const note = "not watched yet";
  if (begins > c.measureText(note).width + 8) c.fillText(note, 4, 14);
}

// drawLanes draws the rows of a part of all: lanes, and what their objects own. hatchesIn returns the hatches of resources,
// chosen is a point to be marked: [lane, time]. view is [top, height]: one of 200 lanes is 9,600 pixels high.
export function drawLanes(canvas, all, hatchesIn, scale, chosen, view) {
  const [top, height] = view ?? [0, all.length ? all.at(-1).top + all.at(-1).height : 1];
  const rows = all.filter((row) => row.top < top + height && row.top + row.height > top);
  const [c, color] = [open(canvas, scale.width, height), colors()];
  background(c, scale, height, color);
  c.translate(0, -top);
  for (const row of rows) {
    if (chosen && row.lane === chosen.lane && !row.ofChildren) {
      c.fillStyle = color.hit;
      c.fillRect(0, row.top, scale.width, row.height);
    }
  }
  for (const row of rows) {
    hatch(c, scale, hatchesIn(row.ofChildren ? Object.keys(row.lane.children ?? {}) : [row.lane.resource]), row.top, row.height, color);
    const middle = row.top + row.height / 2;
    c.fillStyle = color.line;
    c.fillRect(0, row.top + row.height - 1, scale.width, 1);
    if (row.ofChildren) {
      buckets(c, row.lane.childBuckets ?? [], row.top + 2, row.height - 5, scale, color, false);
      continue;
    }
    existence(c, row.lane, middle, scale, color);
    if (row.lane.buckets) buckets(c, row.lane.buckets, row.top + 3, row.height - 6, scale, color, true);
    for (const [time, kind] of row.lane.points ?? []) mark(c, kind, scale.x(time), middle, color, 6);
  }
  if (chosen) {
    c.strokeStyle = color.text;
    c.lineWidth = 1;
    c.setLineDash([2, 3]);
    c.beginPath();
    c.moveTo(scale.x(chosen.time), top);
    c.lineTo(scale.x(chosen.time), top + height);
    c.stroke();
  }
}

// nearest is the point of a lane next to a place, if one is near.
export function nearest(lane, x, scale) {
  let best = null;
  let distance = 12;
  for (const point of lane.points ?? []) {
    const d = Math.abs(scale.x(point[0]) - x);
    if (d < distance) [best, distance] = [point, d];
  }
  return best;
}

// holesOf are what may be missing of an answer: also what came after the end of the history.
export function holesOf(answer) {
  const end = answer.ends ? [{ since: answer.ends, until: answer.until ?? answer.b ?? new Date().toISOString(), reason: "ended" }] : [];
  return [...(answer.incomplete ?? []), ...end];
}

// hatchesOf are the times of an answer, of some resources or of all, in which changes may be missing or became known late, the
// newest first. Those of several resources that overlap are one.
export function hatchesOf(incomplete, resources) {
  const list = [];
  const ordered = (incomplete ?? []).filter((h) => !resources || !h.resource || resources.includes(h.resource)).map((h) => ({ from: Date.parse(h.since), to: Date.parse(h.until ?? h.since), full: h.reason !== "unwatched", what: h.what, reason: h.reason, resource: h.resource })).sort((a, b) => a.from - b.from);
  for (const h of ordered) {
    const one = list.find((o) => o.full === h.full && o.reason === h.reason && h.from <= o.to + 1000);
    if (!one) list.push({ ...h, resources: new Set([h.resource]) });
    else {
      one.to = Math.max(one.to, h.to);
      one.resources.add(h.resource);
    }
  }
  return list.reverse();
}

const reasons = { expired: "the watch had expired", dropped: "events were dropped", ended: "the history has nothing newer" };

// noteOf says what a hatch means.
export function noteOf(h) {
  const of = h.resources.size > 1 ? `${h.resources.size} resources` : h.resource || "all";
  const time = h.to - h.from < 1000 ? clock(h.from) : range(h.from, h.to);
  const sign = element("span", { class: h.full ? "hatch full" : "hatch", "aria-hidden": "true" });
  if (h.full) return element("p", { class: "gap" }, sign, ` Changes may be missing ${time}, ${of}: ${reasons[h.reason] ?? h.what}`);
  return element("p", { class: "unwatched" }, sign, ` Not watched ${time}, ${of}: complete, but times are the latest possible (≤)`);
}
