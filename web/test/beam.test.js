import { expect, test } from "vitest";
import { chosen, layout, shares, steps, weight } from "../src/logic/beam.js";

const prefix = (symbols, probability, outcome, parent, hits = [], ends = false) => ({
  prefix: symbols,
  symbol: String(symbols.at(-1)),
  docid: symbols.join("-"),
  logprob: Math.log(probability),
  outcome,
  ends,
  documents: 1,
  hits,
  parent,
});
const PANEL = {
  kind: "beam",
  normalisation: "trie",
  levels: [
    { length: 1, kept: 2, ended: 0, pruned: 1, prefixes: [prefix([3], 0.6, "kept", null, ["a", "b"]), prefix([1], 0.3, "kept", null, ["c"]), prefix([2], 0.1, "pruned", null)] },
    {
      length: 2,
      kept: 0,
      ended: 3,
      pruned: 1,
      prefixes: [
        prefix([3, 0], 0.5, "ended", 0, ["a"], true),
        prefix([1, 4], 0.3, "ended", 1, ["c"], true),
        prefix([3, 7], 0.1, "ended", 0, ["b"], true),
        prefix([3, 8], 0.05, "pruned", 0, [], true),
      ],
    },
  ],
  paths: [
    { id: "a", prefix: [3, 0] },
    { id: "c", prefix: [1, 4] },
    { id: "b", prefix: [3, 7] },
  ],
};

test("the paths of hits are a tree of their own", () => {
  const ids = chosen(PANEL, "hits").map((node) => node.id);
  expect(ids).toEqual(["3", "1", "3,0", "1,4", "3,7"]);
});

test("what was pruned is drawn beside the best, and all of it where that is wanted", () => {
  expect(chosen(PANEL, "best").filter((node) => node.outcome === "pruned").map((node) => node.id)).toEqual(["2", "3,8"]);
  expect(chosen(PANEL, "all")).toHaveLength(7);
});

test("a step shows the levels up to it", () => {
  expect(chosen(PANEL, "all", 1).map((node) => node.level)).toEqual([0, 0, 0]);
});

test("every node but those of the first level has its parent in the tree", () => {
  for (const way of ["hits", "best", "all"]) {
    const nodes = chosen(PANEL, way);
    const ids = new Set(nodes.map((node) => node.id));
    for (const node of nodes) expect(node.level === 0 || ids.has(node.above)).toBe(true);
  }
});

test("no two nodes stand on each other, and a parent stands left of its children at the first of them", () => {
  const { nodes, rows, width } = layout(chosen(PANEL, "all"), { letter: 7, gap: 20, root: 10 });
  expect(new Set(nodes.map((node) => `${node.x} ${node.y}`)).size).toBe(nodes.length);
  expect(rows).toBe(nodes.filter((node) => node.leaf).length);
  for (const node of nodes) {
    const below = nodes.filter((other) => other.above === node.id);
    if (below.length) expect(Math.min(...below.map((other) => other.y))).toBe(node.y);
    for (const other of below) expect(other.x).toBeGreaterThan(node.x);
    expect(node.x).toBeLessThan(width);
    expect(node.y).toBeLessThan(rows);
  }
});

test("the path of the chosen hit is at the top", () => {
  const { nodes } = layout(chosen(PANEL, "all"), { first: "c" });
  expect(nodes.find((node) => node.id === "1,4").y).toBe(0);
});

test("an empty beam has an empty layout", () => {
  expect(layout(chosen({ ...PANEL, levels: [] }))).toMatchObject({ nodes: [], rows: 0 });
});

test("the steps of a docid multiply to its probability", () => {
  const path = steps(PANEL, "b");
  expect(path.map((step) => step.symbol)).toEqual(["3", "7"]);
  expect(path.reduce((all, step) => all * step.step, 1)).toBeCloseTo(0.1);
  expect(steps(PANEL, "nobody")).toEqual([]);
});

test("an estimate is written as a logarithm, and a probability of a docid as a share", () => {
  const panel = { ...PANEL, normalisation: "documents" };
  expect(weight(panel, { logprob: 2.5, ends: false })).toBe("log 2.50");
  expect(weight(panel, { logprob: Math.log(0.25), ends: true })).toBe("25 %");
  expect(shares(PANEL.levels[0].prefixes).reduce((all, share) => all + share, 0)).toBeCloseTo(1);
});
