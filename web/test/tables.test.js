import { expect, test } from "vitest";
import { measure, percent, score, short } from "../src/logic/format.js";
import { curve, pairs, ranks } from "../src/logic/lines.js";
import { axis, datasets, sorted } from "../src/logic/tables.js";

const row = (name, mean, low = mean, high = mean) => ({ name, seeds: 1, scores: mean === undefined ? {} : { m: { mean, low, high } } });

test("rows are sorted by a measure or a name, and those without a value are last", () => {
  const rows = [row("b10", 0.2), row("b9", 0.5), row("c"), row("a", 0.3)];
  expect(sorted(rows, "m", true).map((one) => one.name)).toEqual(["b9", "a", "b10", "c"]);
  expect(sorted(rows, "m", false).map((one) => one.name)).toEqual(["b10", "a", "b9", "c"]);
  expect(sorted(rows, "name", false).map((one) => one.name)).toEqual(["a", "b9", "b10", "c"]);
});

test("an axis holds every interval", () => {
  for (const rows of [[row("a", 0.42, 0.4, 0.44)], [row("a", 0.5)], [row("a", 0)], [row("a", 120, 90, 300), row("b", 12, 7, 13)]]) {
    const { at, ticks } = axis(rows, "m");
    for (const { scores } of rows)
      for (const value of Object.values(scores.m)) {
        expect(at(value)).toBeGreaterThanOrEqual(-1e-9);
        expect(at(value)).toBeLessThanOrEqual(1 + 1e-9);
      }
    expect(ticks.length).toBeGreaterThan(1);
    expect(ticks.length).toBeLessThan(8);
  }
  expect(axis([row("a")], "m")).toBeNull();
});

test("the corpus at hand comes first", () => {
  expect(datasets([{ data: "a" }, { data: "b" }, { data: "b" }], ["b"])).toEqual([{ name: "b", tables: 2 }, { name: "a", tables: 1 }]);
});

test("lines join equal documents", () => {
  const hits = (...ids) => ids.map((id) => ({ id }));
  expect(pairs(hits("a", "b", "c"), hits("c", "a"))).toEqual([{ id: "a", from: 0, to: 1 }, { id: "c", from: 2, to: 0 }]);
  expect(curve(0, 1, 10, 4)).toBe("M0 5C2 5 2 15 4 15");
  expect(ranks([{ retriever: "x", hits: hits("a") }, { retriever: "y", hits: hits("b", "a") }]).get("a")).toEqual([["x", 1], ["y", 2]]);
});

test("numbers are written as people read them", () => {
  expect([percent(1), percent(0.123), percent(0.0456), percent(0.00001), percent(1e-9), percent(0)]).toEqual(["100 %", "12 %", "4.6 %", "0.001 %", "< 0.001 %", "0 %"]);
  expect([score(-1.234), score(0.5), score(12345.6), score(0), score(1e-7)]).toEqual(["−1.23", "0.500", "12,346", "0", "1.0e−7"]);
  expect([measure(0.4217), measure(1)]).toEqual([".422", "1.000"]);
  expect(short("🙂🙂🙂", 2)).toBe("🙂…");
});
