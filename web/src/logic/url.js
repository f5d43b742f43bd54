// What the page shows is in its address, so that it can be shared and the back button works.

export const VIEWS = ["search", "why", "docids", "ask", "results", "documents"];
export const MOST = 3; // retrievers side by side
const HITS = 10;

/** The state that the query part of an address stands for; whatever makes no sense is left out. */
export function parse(query) {
  const given = new URLSearchParams(query);
  const view = given.get("view");
  const names = [...new Set(given.getAll("with").filter(Boolean))].slice(0, MOST);
  return {
    view: VIEWS.includes(view) ? view : "search",
    q: given.get("q") ?? "",
    names,
    k: whole(given.get("k"), HITS, 1, 100),
    where: given.get("where") ?? "",
    hit: given.get("hit") ?? "",
    doc: given.get("doc") ?? "",
    of: given.get("of") ?? "",
    data: given.get("data") ?? "",
    table: given.get("table") ?? "",
  };
}

/** The address of a state; what is as usual does not stand there. */
export function format(state) {
  const out = new URLSearchParams();
  if (state.view && state.view !== "search") out.set("view", state.view);
  if (state.q) out.set("q", state.q);
  for (const name of state.names ?? []) out.append("with", name);
  if (state.k && state.k !== HITS) out.set("k", String(state.k));
  for (const key of ["where", "hit", "doc", "of", "data", "table"]) if (state[key]) out.set(key, state[key]);
  const text = out.toString();
  return text ? `?${text}` : "./";
}

function whole(text, usual, low, high) {
  const number = Number(text);
  return text && Number.isInteger(number) && number >= low && number <= high ? number : usual;
}
