import { h, render } from "preact";
import { expect, test } from "vitest";
import { pieces } from "../src/logic/marks.js";

test("marked and unmarked pieces are the whole text", () => {
  const text = "sort 🙂 the list";
  for (const ranges of [[], [[0, 4]], [[7, 10], [0, 4]], [[0, 99]], [[5, 6]], [[2, 8], [4, 10]], [[3, 3]]])
    expect(pieces(text, ranges).map(([part]) => part).join("")).toBe(text);
});

test("ranges count code points, as Python does", () => {
  expect(pieces("🙂 list", [[2, 6]])).toEqual([["🙂 ", false], ["list", true]]);
});

test("texts are never HTML", () => {
  // A stand-in for a browser's document notes what is asked of it: Preact makes text nodes of whatever it is given.
  const made = [];
  const node = (name) => ({ name, nodeType: 1, localName: name, namespaceURI: "http://www.w3.org/1999/xhtml", childNodes: [], attributes: [], style: {}, insertBefore(child) { made.push(child); child.parentNode = this; return child; }, removeChild() {}, setAttribute() {}, removeAttribute() {}, addEventListener() {}, get firstChild() { return null; } });
  globalThis.document = { createElementNS: (_, name) => node(name), createElement: node, createTextNode: (data) => ({ nodeType: 3, data }), documentElement: node("html") };
  const evil = "<img src=x onerror=alert(1)>";
  render(h("p", null, pieces(evil, [[1, 4]]).map(([part, marked]) => (marked ? h("mark", null, part) : part))), node("div"));
  expect(made.filter((one) => one.nodeType === 3).map((one) => one.data).sort()).toEqual(["<", "img", " src=x onerror=alert(1)>"].sort());
  expect(made.filter((one) => one.nodeType === 1).map((one) => one.name).sort()).toEqual(["mark", "p"]);
});
