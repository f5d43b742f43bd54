import { percent, score } from "./format.js";

// The beam of a search as a tree: which prefixes are drawn, and where. Knows nothing of the screen but units.

/** What is drawn of a level besides the paths of hits. */
export const WAYS = { hits: 0, best: 8, all: Infinity };
export const PRUNED = 2;

const key = (prefix) => prefix.join(",");

/**
 * What is written beside a prefix. Where probabilities are over documents, only that of a whole docid is one: that of a
 * prefix is an estimate that may be above one, and is written as a logarithm.
 */
export const weight = (panel, prefix) =>
  panel.normalisation === "documents" && !prefix.ends ? `log ${score(prefix.logprob)}` : percent(Math.exp(prefix.logprob));

/** The shares of prefixes of one level, which add up to one, for the thickness of lines. */
export function shares(prefixes) {
  const most = Math.max(...prefixes.map((prefix) => prefix.logprob));
  const sum = prefixes.reduce((all, prefix) => all + Math.exp(prefix.logprob - most), 0);
  return prefixes.map((prefix) => Math.exp(prefix.logprob - most) / sum);
}

/**
 * The nodes of a beam panel as a tree: {id, prefix, parent, level, ...} in the order of their levels.
 * `way` says how many of the most probable prefixes of a level are drawn besides those that lead to hits, and `levels`
 * how many levels there are to see. A parent is drawn wherever a child is.
 */
export function chosen(panel, way = "best", levels = panel.levels.length) {
  const shown = panel.levels.slice(0, levels);
  const needed = shown.map(() => new Set());
  shown.forEach((level, depth) => {
    let best = 0;
    let pruned = 0;
    level.prefixes.forEach((prefix, at) => {
      const isPruned = prefix.outcome === "pruned";
      const leads = prefix.hits.length > 0 && !isPruned;
      if (leads || (isPruned ? pruned++ < Math.min(PRUNED, WAYS[way]) || way === "all" : best++ < WAYS[way]))
        needed[depth].add(at);
    });
  });
  for (let depth = shown.length - 1; depth > 0; depth--)
    for (const at of needed[depth]) {
      const { parent } = shown[depth].prefixes[at];
      if (parent !== null && parent !== undefined) needed[depth - 1].add(parent);
    }
  return shown.flatMap((level, depth) => {
    const share = shares(level.prefixes);
    return [...needed[depth]].sort((one, other) => one - other).map((at) => {
      const prefix = level.prefixes[at];
      const above = prefix.parent === null || prefix.parent === undefined ? null : shown[depth - 1]?.prefixes[prefix.parent];
      return {
        ...prefix,
        id: key(prefix.prefix),
        above: above ? key(above.prefix) : "",
        level: depth,
        share: share[at],
        weight: weight(panel, prefix),
      };
    });
  });
}

/**
 * Where nodes stand: each leaf has a row of its own, a parent stands at the first of its children, and a level is a
 * column that is as wide as its longest label, or its head. The path of the hit `first` is at the top. Gives {nodes: [{..., x, y}], columns: [x], width, rows}.
 */
export function layout(nodes, { widest = 22, letter = 1, gap = 8, root = 3, heads = [], first = "" } = {}) {
  const children = new Map();
  const leads = (node) => node.hits.includes(first) && node.outcome !== "pruned";
  for (const node of [...nodes].sort((one, other) => leads(other) - leads(one)))
    children.set(node.above, [...(children.get(node.above) ?? []), node]);
  const depth = Math.max(-1, ...nodes.map((node) => node.level));
  const columns = [];
  let x = root;
  for (let level = 0; level <= depth; level++) {
    columns.push(x);
    const labels = nodes.filter((node) => node.level === level).map((node) => Math.min(widest, label(node).length));
    x += Math.max((heads[level]?.length ?? 0) * letter, Math.max(...labels) * letter + gap);
  }
  const placed = [];
  let row = 0;
  const place = (node) => {
    const below = children.get(node.id) ?? [];
    const first = below.map(place)[0];
    const y = first ? first.y : row++;
    const own = { ...node, x: columns[node.level], y, leaf: !below.length };
    placed.push(own);
    return own;
  };
  const tops = (children.get("") ?? []).map(place);
  return { nodes: placed, columns, width: x, rows: row, root: { x: 0, y: tops[0]?.y ?? 0 } };
}

/** What stands beside a node. */
export const label = (node) => `${node.symbol} ${node.weight}${node.ends ? " · rank 10" : ""}`;

/** The steps of the docid of one hit: each symbol with the probability that it had behind those before it.
 *
 * Estimates have no such probability; there it is the share of the prefix among those of its length.
 */
export function steps(panel, hit) {
  const path = panel.paths.find((one) => one.id === hit)?.prefix;
  if (!path) return [];
  const out = [];
  for (const level of panel.levels) {
    const at = level.prefixes.find((prefix) => key(prefix.prefix) === key(path.slice(0, level.length)));
    if (!at || level.length > path.length) break;
    const above = out.at(-1)?.logprob ?? 0;
    const isEstimate = panel.normalisation === "documents";
    const step = isEstimate ? shares(level.prefixes)[level.prefixes.indexOf(at)] : Math.exp(at.logprob - above);
    const text = isEstimate ? weight(panel, at) : percent(step);
    out.push({ symbol: at.symbol, docid: at.docid, logprob: at.logprob, step, text, documents: at.documents, ends: at.ends });
  }
  return out;
}
