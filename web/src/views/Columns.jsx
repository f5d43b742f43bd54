// Two or three retrievers side by side, with lines between equal documents. Rows have one height, so that lines need no
// measuring and nothing jumps.
import { useState } from "preact/hooks";
import { score } from "../logic/format.js";
import { curve, pairs, ranks } from "../logic/lines.js";
import { Marked, titleOf } from "../parts/hits.jsx";
import { link } from "../state.js";

const HEIGHT = 92;
const GAP = 56;

export function Columns({ columns, k }) {
  const [pointed, setPointed] = useState(null);
  const places = ranks(columns);
  const inAll = [...places.values()].filter((own) => own.length === columns.length).length;
  const rows = Math.max(...columns.map((column) => column.hits.length));
  return (
    <section aria-label="Results side by side">
      <p class="summary" role="status">
        {inAll} of the first {Math.min(k, rows)} documents {inAll === 1 ? "is" : "are"} found by {columns.length === 2 ? "both" : "all three"}
      </p>
      <div class={`columns of-${columns.length}`}>
        {columns.map((column, at) => (
          <>
            {at > 0 && <Lines key={`${at}-lines`} left={columns[at - 1].hits} right={column.hits} rows={rows} pointed={pointed} />}
            <div class="column" key={column.retriever}>
              <h2>{column.retriever}</h2>
              {!column.hits.length && <p class="muted">It found nothing.</p>}
              <ol>
                {column.hits.map((hit, rank) => (
                  <Row key={hit.id} hit={hit} rank={rank + 1} name={column.retriever} places={places.get(hit.id)} lit={pointed === hit.id} point={setPointed} />
                ))}
              </ol>
            </div>
          </>
        ))}
      </div>
    </section>
  );
}

function Row({ hit, rank, name, places, lit, point }) {
  const elsewhere = places.filter(([other]) => other !== name);
  const events = {
    onMouseEnter: () => point(hit.id),
    onMouseLeave: () => point(null),
    onFocusIn: () => point(hit.id),
    onFocusOut: () => point(null),
  };
  return (
    <li class={lit ? "row lit" : "row"} {...events}>
      <p class="row-title">
        <span class="rank" aria-hidden="true">
          {rank}
        </span>
        <a {...link({ doc: hit.id, of: name })} title={titleOf(hit)}>
          {titleOf(hit)}
        </a>
      </p>
      <p class="snippet">
        <Marked text={hit.snippet.text} ranges={hit.snippet.matches} />
      </p>
      <p class="facts">
        <a class="why" {...link({ view: "why", hit: hit.id, names: [name] })}>
          Why<span class="sr"> {titleOf(hit)} was found by {name}</span>?
        </a>
        <span class="number">{score(hit.score)}</span>
        {elsewhere.map(([other, place]) => (
          <span class="elsewhere" key={other}>
            {other} {place}
          </span>
        ))}
        {!elsewhere.length && <span class="alone">only here</span>}
      </p>
    </li>
  );
}

function Lines({ left, right, rows, pointed }) {
  const height = rows * HEIGHT;
  return (
    <svg class="lines" width={GAP} height={height} viewBox={`0 0 ${GAP} ${height}`} aria-hidden="true">
      {pairs(left, right).map(({ id, from, to }) => (
        <path key={id} class={pointed === id ? "lit" : ""} d={curve(from, to, HEIGHT, GAP)} />
      ))}
    </svg>
  );
}
