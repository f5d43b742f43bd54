import { expect, test } from "vitest";
import { lights, move, rows } from "../src/logic/tree.js";

const branch = (symbol, documents, ends = false) => ({ symbol, text: String(symbol), documents, ends, samples: [] });
const NODES = new Map([
  ["", { documents: 10, total: 3, branches: [branch(0, 6), branch(1, 3), branch(2, 1, true)] }],
  ["0", { documents: 6, total: 4, branches: [branch(5, 4, true), branch(6, 1, true)] }],
]);
const keys = (open) => rows(NODES, new Set(open)).map((row) => row.key);

test("rows are what is unfolded, with a row for further pages", () => {
  expect(keys([])).toEqual(["0", "1", "2"]);
  expect(keys(["0"])).toEqual(["0", "0.5", "0.6", "0/more", "1", "2"]);
  expect(keys(["1"])).toEqual(["0", "1", "1/loading", "2"]);
});

test("a branch of a later page is pinned once", () => {
  const pinned = new Map(NODES).set("0", { ...NODES.get("0"), pinned: [branch(9, 1, true), branch(5, 4, true)] });
  expect(rows(pinned, new Set(["0"])).map((row) => row.key)).toEqual(["0", "0.5", "0.6", "0.9", "0/more", "1", "2"]);
  expect(rows(pinned, new Set(["0"])).find((row) => row.more).more).toBe(1);
});

test("arrows walk, unfold and fold as in any tree", () => {
  const open = new Set(["0"]);
  const visible = rows(NODES, open);
  expect(move(visible, open, "0", "ArrowDown")).toEqual({ focus: "0.5" });
  expect(move(visible, open, "0", "ArrowUp")).toEqual({ focus: "0" });
  expect(move(visible, open, "0", "ArrowRight")).toEqual({ focus: "0.5" });
  expect(move(visible, open, "1", "ArrowRight")).toEqual({ open: "1" });
  expect(move(visible, open, "0.6", "ArrowLeft")).toEqual({ focus: "0" });
  expect(move(visible, open, "0", "ArrowLeft")).toEqual({ close: "0" });
  expect(move(visible, open, "2", "ArrowRight")).toBeNull();
  expect(move(visible, open, "1", "End")).toEqual({ focus: "2" });
  expect(move(visible, open, "gone", "ArrowDown")).toEqual({ focus: "0" });
});

test("a search lights up every prefix of its hits", () => {
  const level = { length: 1, prefixes: [{ prefix: [3], logprob: Math.log(0.5), outcome: "kept", hits: ["a"], ends: false }] };
  const { seen, paths } = lights({ normalisation: "trie", levels: [level], paths: [{ id: "a", prefix: [3, 1, 4] }, { id: "b", prefix: [3, 2] }] });
  expect([...paths.keys()]).toEqual(["3", "3.1", "3.1.4", "3.2"]);
  expect(paths.get("3")).toEqual(["a", "b"]);
  expect(seen.get("3").weight).toBe("50 %");
  expect(lights(null).paths.size).toBe(0);
});
