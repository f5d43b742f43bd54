// Tables of results: order, the axis of intervals, and which dataset is at hand.

/** Rows in the order of a column: the name, a measure, or another number; rows without a value come last. */
export function sorted(rows, column, down) {
  const value = (row) => (column === "name" ? row.name : (row.scores[column]?.mean ?? row[column] ?? null));
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return down ? -order : order;
  });
}

/** An axis that holds all intervals of a measure: {low, high, ticks, at(value) from 0 to 1}. */
export function axis(rows, measure) {
  const scores = rows.map((row) => row.scores[measure]).filter(Boolean);
  if (!scores.length) return null;
  const [low, high] = [Math.min(...scores.map((s) => s.low)), Math.max(...scores.map((s) => s.high))];
  const step = niceStep((high - low || Math.abs(high) || 1) / 3);
  const [from, to] = [Math.floor(low / step) * step, Math.ceil(high / step) * step || step];
  const end = to > from ? to : from + step;
  const ticks = Array.from({ length: Math.round((end - from) / step) + 1 }, (_, n) => from + n * step);
  return { low: from, high: end, ticks, at: (value) => (value - from) / (end - from) };
}

function niceStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= raw);
}

/** Names of datasets with how many tables each has; that of a served retriever comes first. */
export function datasets(tables, atHand) {
  const counts = new Map();
  for (const { data } of tables) counts.set(data, (counts.get(data) ?? 0) + 1);
  const rank = (name) => (atHand.includes(name) ? 0 : 1);
  return [...counts].map(([name, tables]) => ({ name, tables })).sort((a, b) => rank(a.name) - rank(b.name) || a.name.localeCompare(b.name));
}
