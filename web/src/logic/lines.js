// Lines between equal documents of two columns of hits.

/** For each document of both columns, its places [left, right]; hits are compared by their ids. */
export function pairs(left, right) {
  const places = new Map(right.map((hit, place) => [hit.id, place]));
  return left.flatMap((hit, place) => (places.has(hit.id) ? [{ id: hit.id, from: place, to: places.get(hit.id) }] : []));
}

/** The path of a line between two rows of the same height, as wide as the gap. */
export function curve(from, to, height, width) {
  const [start, end] = [(from + 0.5) * height, (to + 0.5) * height];
  return `M0 ${start}C${width / 2} ${start} ${width / 2} ${end} ${width} ${end}`;
}

/** How often a document is in the columns, and at which rank of each: id -> [[name, rank], ...]. */
export function ranks(columns) {
  const found = new Map();
  for (const { retriever, hits } of columns)
    hits.forEach((hit, place) => found.set(hit.id, [...(found.get(hit.id) ?? []), [retriever, place + 1]]));
  return found;
}
