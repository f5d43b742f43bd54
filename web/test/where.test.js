import { expect, test } from "vitest";
import { parseWhere, withCondition } from "../src/logic/where.js";

test.each([
  ["", null],
  ["kind=class", { kind: "class" }],
  [" kind = class ;", { kind: "class" }],
  ["kind=class,function", { kind: ["class", "function"] }],
  ["year>=2020", { year: ">=2020" }],
  ["lang!=de", { lang: "!=de" }],
  ["year>=2010; year<2020", { year: { ">=": "2010", "<": "2020" } }],
  ["a=1; b=2..3", { a: "1", b: "2..3" }],
])("%s", (text, value) => expect(parseWhere(text)).toEqual({ value }));

test.each(["class", "=class", "kind=", "kind"])("%s is no condition", (text) => expect(parseWhere(text).problem).toContain(text));

test("a condition is added once", () => {
  expect(withCondition("", "kind", "class")).toBe("kind=class");
  expect(withCondition("kind=class", "kind", "class")).toBe("kind=class");
  expect(withCondition("kind=class", "year", 3)).toBe("kind=class; year=3");
});
