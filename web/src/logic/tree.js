import { weight } from "./beam.js";

// The docid tree that is browsed: nodes by their prefix, the rows that are visible, and where arrows lead.

export const ROOT = "";
export const keyOf = (prefix) => prefix.join(".");
export const prefixOf = (key) => (key ? key.split(".").map(Number) : []);

/**
 * The visible rows, from the top: {key, depth, branch} of branches, and {more, key} where a page ends.
 * `nodes` has what was loaded, key -> {branches, pinned, total}; `open` the keys that are unfolded. Pinned branches are
 * those of later pages that are shown already.
 */
export function rows(nodes, open) {
  const out = [];
  const walk = (key, depth) => {
    const node = nodes.get(key);
    if (!node) return void (key !== ROOT && out.push({ key: `${key}/loading`, depth, loading: true }));
    const known = new Set(node.branches.map((branch) => branch.symbol));
    const early = (node.pinned ?? []).filter((branch) => !known.has(branch.symbol));
    const most = Math.max(1, ...[...node.branches, ...early].map((branch) => branch.documents));
    for (const [at, branch] of [...node.branches, ...early].entries()) {
      const own = key ? `${key}.${branch.symbol}` : String(branch.symbol);
      out.push({ key: own, depth, branch, share: branch.documents / most, place: at + 1, siblings: node.total });
      if (open.has(own) && !branch.ends) walk(own, depth + 1);
    }
    const more = node.total - node.branches.length - early.length;
    if (more > 0) out.push({ key: `${key}/more`, of: key, depth, more });
  };
  walk(ROOT, 0);
  return out;
}

/** What a key of the keyboard does at a row: {focus}, {open}, {close}, or nothing. */
export function move(visible, open, at, pressed) {
  const place = visible.findIndex((row) => row.key === at);
  const row = visible[place];
  const focus = (index) => ({ focus: visible[Math.min(visible.length - 1, Math.max(0, index))].key });
  if (!row) return visible.length ? focus(0) : null;
  const folds = row.branch && !row.branch.ends;
  if (pressed === "ArrowDown") return focus(place + 1);
  if (pressed === "ArrowUp") return focus(place - 1);
  if (pressed === "Home") return focus(0);
  if (pressed === "End") return focus(visible.length - 1);
  if (pressed === "ArrowRight" && folds) return open.has(row.key) ? focus(place + 1) : { open: row.key };
  if (pressed === "ArrowLeft") {
    if (folds && open.has(row.key)) return { close: row.key };
    const above = visible.slice(0, place).findLastIndex((other) => other.depth < row.depth);
    return above >= 0 ? focus(above) : null;
  }
  return null;
}

/** What a search has to say of prefixes: key -> {weight, outcome}, and key -> the hits whose docids begin so. */
export function lights(panel) {
  const seen = new Map();
  for (const level of panel?.levels ?? [])
    for (const prefix of level.prefixes)
      seen.set(keyOf(prefix.prefix), { weight: weight(panel, prefix), outcome: prefix.outcome });
  const paths = new Map();
  for (const { id, prefix } of panel?.paths ?? [])
    for (let length = 1; length <= prefix.length; length++) {
      const key = keyOf(prefix.slice(0, length));
      paths.set(key, [...(paths.get(key) ?? []), id]);
    }
  return { seen, paths };
}
