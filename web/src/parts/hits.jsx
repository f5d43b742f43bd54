// Hits as they stand in lists, and texts whose matches are marked.
import { score, short } from "../logic/format.js";
import { pieces } from "../logic/marks.js";
import { withCondition } from "../logic/where.js";
import { go, link, state } from "../state.js";

export const Marked = ({ text, ranges }) => (
  <>{pieces(text, ranges).map(([part, marked], at) => (marked ? <mark key={at}>{part}</mark> : part))}</>
);

export const titleOf = (document) => document.title || document.id;

/** A docid: the only thing on the page in a monospaced font. */
export const Docid = ({ text }) => (
  <code class="docid" title={text}>
    {short(text, 60)}
  </code>
);

export function Hit({ hit, rank, retriever }) {
  const title = titleOf(hit);
  return (
    <li class="hit">
      <span class="rank" aria-hidden="true">
        {rank}
      </span>
      <div class="hit-body">
        <h2 class="hit-title">
          <a {...link({ doc: hit.id, of: retriever })}>{title}</a>
        </h2>
        <p class="snippet">
          <Marked text={hit.snippet.text} ranges={hit.snippet.matches} />
        </p>
        <p class="facts">
          <a class="why" {...link({ view: "why", hit: hit.id, names: [retriever] })}>
            Why<span class="sr"> {title} was found</span>?
          </a>
          <span class="number" title={hit.logprob !== undefined ? "The log-probability of its docid" : "The score"}>
            {score(hit.score)}
          </span>
          {hit.docid !== undefined && <Docid text={hit.docid} />}
          <Metadata values={hit.metadata} />
        </p>
      </div>
    </li>
  );
}

/** What is known of a document; one that can be filtered by is a button. */
export function Metadata({ values, most = 3 }) {
  const plain = Object.entries(values ?? {}).filter(([, value]) => ["string", "number", "boolean"].includes(typeof value));
  return plain
    .filter(([, value]) => String(value).length <= 30)
    .slice(0, most)
    .map(([name, value]) => (
      <button
        key={name}
        type="button"
        class="tag"
        title={`Search only where ${name} is ${value}`}
        onClick={() => go({ view: "search", doc: "", hit: "", where: withCondition(state.value.where, name, value) })}
      >
        {name}: {String(value)}
      </button>
    ));
}
