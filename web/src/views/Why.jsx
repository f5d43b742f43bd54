// Why a result was found, drawn from the explanation's own data: the parts of its score, and a panel for each kind.
import { explain } from "../api.js";
import { score } from "../logic/format.js";
import { parseWhere } from "../logic/where.js";
import { Bars } from "../panels/Bars.jsx";
import { panelOf } from "../panels/index.js";
import { Docid, Marked, titleOf } from "../parts/hits.jsx";
import { Empty, Failure, Skeleton } from "../parts/states.jsx";
import { chosenOf, go, link, state, useAnswer } from "../state.js";

export function Why() {
  const { q, names, k, where, hit } = state.value;
  const [name] = chosenOf(names);
  const filter = parseWhere(where);
  const asked = q && name ? JSON.stringify([name, q, k, filter.value]) : null;
  const { value, error, loading, again } = useAnswer(asked, (signal) => explain(name, q, k, filter.value ?? null, signal));
  return (
    <div class="why-view">
      <p class="back">
        <a {...link({ view: "search", hit: "" })}>← Results</a>
        <span class="muted">
          {q && `“${q}”`} {name && `by ${name}`}
        </span>
      </p>
      {!asked ? (
        <Empty title="There is nothing to explain yet.">
          <p>Search first, then ask “Why?” of a result.</p>
        </Empty>
      ) : error ? (
        <Failure error={error} again={again} />
      ) : !value ? (
        <Skeleton rows={6} label="Explaining" tall />
      ) : !value.hits.length ? (
        <Empty title="Nothing was found, so there is nothing to explain." />
      ) : (
        <Explained answer={value} chosen={hit} busy={loading} />
      )}
    </div>
  );
}

function Explained({ answer, chosen, busy }) {
  const { hits, explanation } = answer;
  const at = Math.max(0, hits.findIndex((hit) => hit.id === chosen));
  const isThere = !chosen || hits[at].id === chosen;
  const hit = hits[at];
  const choose = (id) => go({ hit: id }, { replace: true });
  const parts = explanation.hits[at]?.parts ?? {};
  return (
    <div class={busy ? "explained stale" : "explained"}>
      <HitList hits={hits} chosen={hit.id} />
      <article class="reasons">
        {!isThere && <p class="notice">{chosen} is not among these results. This is the first of them.</p>}
        <header class="reasons-head">
          <h1>{titleOf(hit)}</h1>
          <p class="snippet">
            <Marked text={hit.snippet.text} ranges={hit.snippet.matches} />
          </p>
          <p class="facts">
            <a class="why" {...link({ doc: hit.id, of: answer.retriever })}>
              Read it
            </a>
            <span>
              rank {at + 1}, score <span class="number">{score(hit.score)}</span>
            </span>
            {hit.docid !== undefined && <Docid text={hit.docid} />}
          </p>
        </header>
        {explanation.note && <p class="panel-about">{explanation.note}</p>}
        {explanation.panels?.map((panel, place) => (
          <Panel key={place} panel={panel} hit={hit} hits={hits} choose={choose} />
        ))}
        <section class="panel">
          <h2>What the score is made of</h2>
          <Bars parts={parts} total={hit.score} />
        </section>
      </article>
    </div>
  );
}

function Panel({ panel, ...rest }) {
  const { title, Component } = panelOf(panel.kind);
  return (
    <section class="panel" data-kind={panel.kind}>
      <h2>
        {title(panel)}
        {panel.system && <span class="muted"> · {panel.system}</span>}
      </h2>
      {panel.about && <p class="panel-about">{panel.about}</p>}
      <Component panel={panel} {...rest} />
    </section>
  );
}

function HitList({ hits, chosen }) {
  return (
    <nav class="hit-list" aria-label="Results">
      <ol>
        {hits.map((hit, at) => (
          <li key={hit.id}>
            <a aria-current={hit.id === chosen ? "true" : undefined} {...link({ hit: hit.id })}>
              <span class="rank">{at + 1}</span>
              <span class="hit-list-title">{titleOf(hit)}</span>
              <span class="number">{score(hit.score)}</span>
            </a>
          </li>
        ))}
      </ol>
    </nav>
  );
}
