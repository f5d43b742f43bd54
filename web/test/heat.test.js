import { expect, test } from "vitest";
import { around, matrix, scale, shade, STEPS, token } from "../src/logic/heat.js";

test("the heaviest has all of the colour, and the order of weights is that of colours", () => {
  const weights = [0, 0.1, -0.2, 0.5, 1.5];
  const share = scale(weights);
  expect(share(1.5)).toBe(1);
  expect(share(-0.2)).toBeLessThan(0);
  const shades = [0, 0.1, 0.5, 1.5].map((weight) => Number(shade(share(weight)).split("-")[1]));
  expect(shades).toEqual([...shades].sort((a, b) => a - b));
  expect(shade(1)).toBe(`heat-${STEPS}`);
  expect(shade(-1)).toBe(`cold-${STEPS}`);
});

test("nothing to colour is no colour", () => {
  expect(shade(scale([])(1))).toBe("heat-0");
  expect(shade(scale([0, 0])(0))).toBe("heat-0");
  expect(shade(scale([1])(NaN))).toBe("heat-0");
});

test("pieces of words are joined", () => {
  expect(token("##ing")).toEqual({ text: "ing", joined: true });
  expect(token("▁sort")).toEqual({ text: "sort", joined: false });
  expect(token("Ġsort")).toEqual({ text: "sort", joined: false });
  expect(token("sort")).toEqual({ text: "sort", joined: false });
});

test("a long document is cut to what matches, and no token is lost or repeated", () => {
  const weights = Array.from({ length: 500 }, (_, at) => (at === 250 ? 1 : 0));
  const shown = around(weights, [[0, 10, 0.5]]);
  expect(shown.reduce((all, piece) => all + (piece.gap ?? 1), 0)).toBe(500);
  const kept = shown.filter((piece) => piece.gap === undefined).map((piece) => piece.at);
  expect(kept).toContain(10);
  expect(kept).toContain(250);
  expect(kept.length).toBeLessThan(60);
  expect(around(weights.slice(0, 100), [])).toHaveLength(100);
});

test("a matrix has the columns that weigh most, in the order of the text", () => {
  const { columns, value } = matrix([[0, 9, 0.5], [1, 2, 0.9], [2, 9, 0.1], [3, 5, 0.01]], 2);
  expect(columns).toEqual([2, 9]);
  expect(value(0, 9)).toBe(0.5);
  expect(value(0, 2)).toBeUndefined();
});
