// Which tokens of the query fit which tokens of the document, as a heat map over both texts and as a small matrix.
import { useState } from "preact/hooks";
import { around, matrix, scale, shade, token } from "../logic/heat.js";
import { score } from "../logic/format.js";

export function Matches({ panel, hit }) {
  const [pointed, setPointed] = useState(null);
  const own = panel.hits.find((one) => one.id === hit.id);
  if (!own) return <p class="muted">Nothing is known about this result here.</p>;
  const ofQuery = scale(panel.hits.flatMap((one) => one.query));
  const ofDocument = scale(own.weights);
  const linked = new Map(own.links.map(([row, at]) => [row, at]));
  const lit = pointed === null ? undefined : linked.get(pointed);
  return (
    <div class="matches">
      <p class="matches-head">Query</p>
      <p class="tokens">
        {panel.query.map((piece, at) => [
          token(piece).joined ? "" : " ",
          <button
            key={at}
            type="button"
            class={`token ${shade(ofQuery(own.query[at] ?? 0))}${pointed === at ? " lit" : ""}${token(piece).joined ? " joined" : ""}`}
            title={`It adds ${score(own.query[at] ?? 0)}`}
            aria-pressed={pointed === at}
            onMouseEnter={() => setPointed(at)}
            onMouseLeave={() => setPointed(null)}
            onFocus={() => setPointed(at)}
            onBlur={() => setPointed(null)}
          >
            {token(piece).text}
          </button>,
        ])}
      </p>
      <p class="matches-head">Document</p>
      <p class="tokens document-tokens">
        {around(own.weights, own.links).map((piece) =>
          piece.gap ? (
            <span key={`gap ${piece.gap}`} class="muted">
              {" "}
              … {piece.gap} tokens …{" "}
            </span>
          ) : (
            [token(own.document[piece.at]).joined ? "" : " ",
            <span
              key={piece.at}
              class={`token ${shade(ofDocument(own.weights[piece.at]))}${lit === piece.at ? " lit" : ""}${token(own.document[piece.at]).joined ? " joined" : ""}`}
              title={`It adds ${score(own.weights[piece.at])}`}
            >
              {token(own.document[piece.at]).text}
            </span>]
          ),
        )}
      </p>
      <Matrix panel={panel} own={own} />
      <p class="legend muted">
        <span class="token heat-1">little</span>
        <span class="token heat-4">more</span>
        <span class="token heat-8">most</span>
        <span class="token cold-4">below zero</span>
      </p>
    </div>
  );
}

function Matrix({ panel, own }) {
  const { columns, value } = matrix(own.links);
  const share = scale(own.links.map(([, , weight]) => weight));
  if (columns.length < 2) return null;
  return (
    <div class="matrix-scroll" tabindex="0" role="region" aria-label="Tokens of the query against tokens of the document">
      <table class="matrix">
        <caption class="sr">What a token of the query and one of the document add together</caption>
        <thead>
          <tr>
            <td />
            {columns.map((at) => (
              <th key={at} scope="col">
                <span>{own.document[at]}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {panel.query.map((piece, row) => (
            <tr key={row}>
              <th scope="row">{piece}</th>
              {columns.map((at) => {
                const weight = value(row, at);
                return (
                  <td key={at} class={weight === undefined ? "" : shade(share(weight))}>
                    {weight === undefined ? "" : score(weight)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
