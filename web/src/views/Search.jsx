import { search } from "../api.js";
import { count, many } from "../logic/format.js";
import { EXAMPLE, parseWhere } from "../logic/where.js";
import { Picker, QueryForm } from "../parts/fields.jsx";
import { Hit } from "../parts/hits.jsx";
import { Empty, Failure, Skeleton, sentence } from "../parts/states.jsx";
import { chosenOf, go, retrievers, state, useAnswer } from "../state.js";
import { Columns } from "./Columns.jsx";

export function Search() {
  const { q, names, k, where } = state.value;
  const chosen = chosenOf(names);
  const filter = parseWhere(where);
  const asked = q && chosen.length && !filter.problem ? JSON.stringify([q, chosen, k, filter.value]) : null;
  const { value, error, loading, again } = useAnswer(asked, (signal) => search(chosen, q, k, filter.value, signal));
  return (
    <div class="search">
      <h1 class="sr">Search</h1>
      <QueryForm value={q} label="What do you look for?" action="Search" placeholder="Ask in your own words" onSubmit={(text) => go({ q: text })}>
        <div class="query-options">
          <Picker chosen={chosen} onChange={(next) => go({ names: next })} />
          <Filter text={where} />
        </div>
      </QueryForm>
      <div aria-busy={loading} class={loading && value ? "stale" : ""}>
        {filter.problem ? (
          <Failure error={{ message: filter.problem, hint: filter.hint }} />
        ) : error ? (
          <Failure error={error} again={again} />
        ) : !asked ? (
          <Welcome />
        ) : !value ? (
          <Skeleton rows={Math.min(k, 8)} label="Searching" tall />
        ) : (
          <Found value={value} k={k} />
        )}
      </div>
    </div>
  );
}

function Found({ value, k }) {
  const { results } = value;
  if (results.every((result) => !result.hits.length))
    return (
      <Empty title="Nothing was found.">
        <p>Use other words, choose another retriever, or leave the filter out.</p>
      </Empty>
    );
  if (results.length > 1) return <Columns columns={results} k={k} />;
  const [{ hits, retriever, note, certificate, thought }] = results;
  return (
    <section aria-label={`Results of ${retriever}`}>
      <p class="summary" role="status">
        {many(hits.length, "document")} by {retriever}
        {note && <> · {note}</>}
        {certificate && <> · {sentence(certificate)}</>}
        {thought && <> · It thought first: “{thought}”</>}
      </p>
      <ol class="hits">
        {hits.map((hit, at) => (
          <Hit key={hit.id} hit={hit} rank={at + 1} retriever={retriever} />
        ))}
      </ol>
    </section>
  );
}

function Filter({ text }) {
  const apply = (event) => go({ where: event.currentTarget.value.trim() });
  return (
    <span class="field inline filter">
      <label for="where">Only where</label>
      <input
        id="where"
        key={text}
        defaultValue={text}
        placeholder={EXAMPLE}
        autocomplete="off"
        spellcheck={false}
        onChange={apply}
      />
    </span>
  );
}

/** What a person sees first: what is served, and how to go on. */
function Welcome() {
  return (
    <section class="welcome" aria-label="What is served">
      <p class="lead">
        Type a question and press Enter. Choose two or three retrievers to see their results side by side, and ask “Why?” of any
        result to see how it was found.
      </p>
      <ul class="served">
        {retrievers.value.map((one) => (
          <li key={one.name}>
            <strong>{one.name}</strong>
            <span class="number">{one.documents !== undefined && `${count(one.documents)} documents`}</span>
            <span class="muted">{one.state === "ready" ? abilities(one) : one.state === "loading" ? "It is being loaded." : "It cannot be loaded. The server’s log says why."}</span>
          </li>
        ))}
      </ul>
      <p class="muted keys">
        <kbd>/</kbd> goes to the field. <kbd>Esc</kbd> closes a document. The address of this page has your search, so that you can share it.
      </p>
    </section>
  );
}

const ABOUT = {
  answerer: "It finds documents, reads them and answers.",
  bm25: "It matches words.",
  contextual: "It writes titles in a vocabulary of its own.",
  dense: "It compares one vector of each text.",
  fused: "It merges what others find.",
  gdr: "It writes clusters, and compares vectors inside.",
  generative: "It writes docids.",
  multivector: "It compares a vector of each token.",
  reatt: "It attends to documents, and answers.",
  reranked: "It reads again what another finds.",
};
const abilities = (one) => ABOUT[one.kind] ?? `It is of the kind ${one.kind}.`;
