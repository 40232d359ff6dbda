// The drawing of a time: marks, bars of existence, hatches. The names beside it are elements; the canvas adds nothing that
// is not in the list below it.

// colors are read from the style sheet, so that light and dark have their own.
function colors() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return { line: read("--line"), bar: read("--bar"), exist: read("--exist"), good: read("--good"), bad: read("--bad"), warn: read("--warn"), soft: read("--soft"), text: read("--text"), hatch: read("--hatch"), card: read("--card"), hit: read("--hit") };
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
    c.globalAlpha = h.full ? 0.9 : 0.45;
    c.fillStyle = color.hatch;
    c.fillRect(a, top, b - a, height);
    c.strokeStyle = color.warn;
    c.lineWidth = h.full ? 1.5 : 0.8;
    const step = h.full ? 6 : 11;
    c.beginPath();
    for (let x = a - height - ((a - height) % step); x < b; x += step) {
      c.moveTo(x, top + height);
      c.lineTo(x + height, top);
    }
    c.stroke();
    c.restore();
  }
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

export function scaleOf(from, to, width, count) {
  return { x: (time) => ((time - from) / (to - from)) * width, time: (x) => from + (x / width) * (to - from), width, buckets: count, now: Math.min(Date.now(), to) };
}

// drawHistogram draws how much happened when.
export function drawHistogram(canvas, histogram, hatches, scale, height, label) {
  const [c, color] = [open(canvas, scale.width, height), colors()];
  hatch(c, scale, hatches, 0, height, color);
  buckets(c, histogram.map((n, i) => [i, n, 0]).filter((b) => b[1]), 2, height - 18, scale, color, true);
  c.font = "11px ui-monospace, monospace";
  c.textBaseline = "bottom";
  const count = Math.max(2, Math.floor(scale.width / 160));
  for (let i = 0; i <= count; i++) {
    const x = (scale.width * i) / count;
    c.fillStyle = color.line;
    c.fillRect(Math.min(x, scale.width - 1), height - 14, 1, 14);
    c.fillStyle = color.soft;
    c.textAlign = i === count ? "right" : "left";
    c.fillText(label(scale.time(x)), i === count ? x - 3 : x + 3, height - 1);
  }
}

// drawLanes draws rows: lanes, and what their objects own. chosen is a point to be marked: [lane, time].
export function drawLanes(canvas, rows, hatches, scale, chosen) {
  const height = rows.length ? rows.at(-1).top + rows.at(-1).height : 1;
  const [c, color] = [open(canvas, scale.width, height), colors()];
  for (const row of rows) {
    if (chosen && row.lane === chosen.lane && !row.ofChildren) {
      c.fillStyle = color.hit;
      c.fillRect(0, row.top, scale.width, row.height);
    }
  }
  hatch(c, scale, hatches, 0, height, color);
  for (const row of rows) {
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
    c.moveTo(scale.x(chosen.time), 0);
    c.lineTo(scale.x(chosen.time), height);
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

// hatchesOf are the times of an answer in which changes may be missing or became known late; the same of several resources
// is one.
export function hatchesOf(incomplete) {
  const seen = new Map();
  for (const h of incomplete ?? []) {
    const from = Date.parse(h.since);
    const to = h.until ? Date.parse(h.until) : from;
    const full = h.reason !== "unwatched";
    const key = `${full} ${Math.round(from / 5000)} ${Math.round(to / 5000)}`;
    const one = seen.get(key);
    if (one) one.resources++;
    else seen.set(key, { from, to, full, what: h.what, reason: h.reason, resource: h.resource, resources: 1 });
  }
  return [...seen.values()].sort((a, b) => b.from - a.from);
}
