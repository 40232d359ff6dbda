// Differences of two texts, line by line.

const most = 1000; // lines of a text that are compared; longer ones are shown whole
const around = 3; // lines that are shown around a difference

// differences returns [sign, line] of each line: "−" only in a, "+" only in b, " " in both. A text that is undefined has no
// line. It returns null for texts that are too long.
export function differences(a, b) {
  const [old, now] = [a, b].map((text) => text?.split("\n") ?? []);
  if (old.length > most || now.length > most) return null;
  // common[i][j] is how many lines old[i…] and now[j…] have in common, in order.
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) common[i][j] = old[i] === now[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  const list = [];
  for (let i = 0, j = 0; i < old.length || j < now.length; ) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      list.push([" ", old[i++]]);
      j++;
    } else if (j === now.length || (i < old.length && common[i + 1][j] >= common[i][j + 1])) list.push(["−", old[i++]]);
    else list.push(["+", now[j++]]);
  }
  return list;
}

// fold leaves out what is the same, but for some lines around each difference, and says how much it left out.
export function fold(list) {
  const near = list.map((_, i) => list.slice(Math.max(0, i - around), i + around + 1).some(([sign]) => sign !== " "));
  const folded = [];
  for (let i = 0; i < list.length; i++) {
    if (near[i]) folded.push(list[i]);
    else if (i === 0 || near[i - 1]) {
      const end = near.indexOf(true, i);
      folded.push(["…", `${(end < 0 ? list.length : end) - i} lines are the same`]);
    }
  }
  return folded;
}
