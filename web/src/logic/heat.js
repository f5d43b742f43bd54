// How strongly a token is coloured, and how a matrix of matches is cut to what there is to see.

/** A scale from weights to shares of the colour, from -1 to 1; all tokens of a panel share one, so they compare. */
export function scale(weights) {
  const most = Math.max(0, ...weights.filter(Number.isFinite).map(Math.abs));
  return (weight) => (most > 0 && Number.isFinite(weight) ? weight / most : 0);
}

export const STEPS = 8;

/** The class of a share: heat-0 is no colour, heat-8 all of it; cold-1 to cold-8 are below zero. */
export function shade(share) {
  const step = Math.min(STEPS, Math.round(Math.abs(share) * STEPS));
  return step === 0 ? "heat-0" : `${share < 0 ? "cold" : "heat"}-${step}`;
}

/** A token as it stands in a text, and whether a space stands before it: WordPiece and SentencePiece mark that. */
export function token(piece) {
  if (piece.startsWith("##")) return { text: piece.slice(2), joined: true };
  if (/^[▁Ġ]/.test(piece)) return { text: piece.slice(1), joined: false };
  return { text: piece, joined: false };
}

/** The tokens of a document in reach of what matches, with gaps: [{at} | {gap: n}]; short documents are shown whole. */
export function around(weights, links, { whole = 160, reach = 12, least = 0.15 } = {}) {
  if (weights.length <= whole) return weights.map((_, at) => ({ at }));
  const most = Math.max(0, ...weights.map(Math.abs));
  const keep = new Set();
  const near = (at) => {
    for (let one = Math.max(0, at - reach); one <= Math.min(weights.length - 1, at + reach); one++) keep.add(one);
  };
  links.forEach(([, at]) => near(at));
  weights.forEach((weight, at) => most && Math.abs(weight) / most >= least && near(at));
  const out = [];
  let gap = 0;
  weights.forEach((_, at) => {
    if (!keep.has(at)) return void gap++;
    if (gap) out.push({ gap });
    gap = 0;
    out.push({ at });
  });
  if (gap) out.push({ gap });
  return out;
}

/** A small matrix: rows are tokens of the query, columns those tokens of the document that are linked with one. */
export function matrix(links, most = 14) {
  const added = new Map();
  for (const [, at, weight] of links) added.set(at, (added.get(at) ?? 0) + Math.abs(weight));
  const columns = [...added].sort((one, other) => other[1] - one[1]).slice(0, most).map(([at]) => at).sort((a, b) => a - b);
  const cells = new Map(links.map(([row, at, weight]) => [`${row},${at}`, weight]));
  return { columns, value: (row, at) => cells.get(`${row},${at}`) };
}
