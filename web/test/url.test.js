import { expect, test } from "vitest";
import { format, parse } from "../src/logic/url.js";

const QUERIES = ["", "merge lists", "a&b=c?d#e", "naïve 検索 🙂", "100 % <b>bold</b>", "+ and ;"];

test("whatever is searched for comes back from its address", () => {
  for (const q of QUERIES)
    for (const names of [[], ["bm25"], ["a/b", "ü", "c d"]]) {
      const state = { ...parse(""), q, names, view: "docids", k: 7, where: "kind=class; year>=2020", hit: q, doc: q };
      expect(parse(format(state).replace("./", ""))).toEqual(state);
    }
});

test("what is as usual does not stand in the address", () => {
  expect(format(parse(""))).toBe("./");
  expect(format({ ...parse(""), q: "x" })).toBe("?q=x");
});

test("an address that makes no sense is read as the usual", () => {
  expect(parse("?view=nowhere&k=-3")).toEqual(parse(""));
  expect(parse("?k=2.5").k).toBe(10);
  expect(parse("?k=101").k).toBe(10);
  expect(parse("?with=a&with=a&with=b&with=c&with=d").names).toEqual(["a", "b", "c"]);
});
