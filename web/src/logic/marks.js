// Texts whose parts are marked: pieces that a component shows as they are, so that nothing of a document becomes HTML.

/** The pieces of a text, [text, marked], by ranges [start, end] of code points, which is how Python counts. */
export function pieces(text, ranges) {
  const letters = [...text];
  const sorted = ranges.filter(([start, end]) => end > start).sort((one, other) => one[0] - other[0]);
  const out = [];
  let at = 0;
  for (const [start, end] of sorted) {
    const from = Math.max(start, at);
    const to = Math.min(end, letters.length);
    if (to <= from) continue;
    if (from > at) out.push([letters.slice(at, from).join(""), false]);
    out.push([letters.slice(from, to).join(""), true]);
    at = to;
  }
  if (at < letters.length) out.push([letters.slice(at).join(""), false]);
  return out;
}
