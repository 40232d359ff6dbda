// Differences of two texts, line by line.

const most = 1000; // lines of a text that are compared; longer ones are shown whole
const around = 3; // lines that are shown around a difference

// differences returns [sign, line] of each line of two lists: "−" only in the first, "+" only in the second, " " in both. It
// returns null for what is too long to compare.
export function differences(old, now) {
  let same = 0; // lines at the begin, and then at the end, need no comparison
  while (same < old.length && same < now.length && old[same] === now[same]) same++;
  let end = 0;
  while (end < old.length - same && end < now.length - same && old[old.length - 1 - end] === now[now.length - 1 - end]) end++;
  const [a, b] = [old.slice(same, old.length - end), now.slice(same, now.length - end)];
  if (a.length > most || b.length > most) return null;
  const equal = (lines) => lines.map((line) => [" ", line]);
  return [...equal(old.slice(0, same)), ...middle(a, b), ...equal(old.slice(old.length - end))];
}

// middle compares what differs by the longest common subsequence.
function middle(old, now) {
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
  if (list.every(([sign]) => sign !== " ")) return list;
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
