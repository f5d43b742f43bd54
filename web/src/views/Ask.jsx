// Questions that a retriever answers from what it finds, with the documents that the answer was written from.
import { answer } from "../api.js";
import { scale, shade } from "../logic/heat.js";
import { percent, score } from "../logic/format.js";
import { Choice, QueryForm } from "../parts/fields.jsx";
import { titleOf } from "../parts/hits.jsx";
import { Empty, Failure, Skeleton } from "../parts/states.jsx";
import { chosenOf, go, link, state, useAnswer } from "../state.js";

const answers = (one) => one.answers;

export function Ask() {
  const { q, names } = state.value;
  const [name] = chosenOf(names, answers);
  const { value, error, loading, again } = useAnswer(q && name ? JSON.stringify([name, q]) : null, (signal) => answer(name, q, signal));
  if (!name)
    return (
      <Empty title="No retriever here answers questions.">
        <p>Serve an answerer or a ReAtt retriever, and it answers here, with its sources.</p>
      </Empty>
    );
  return (
    <div class="ask">
      <h1 class="sr">Ask</h1>
      <QueryForm value={q} label="Your question" action="Ask" placeholder="Ask a question" onSubmit={(text) => go({ q: text })}>
        <div class="query-options">
          <Choice id="by" label="Answered by" value={name} fits={answers} onChange={(next) => go({ names: [next] })} />
        </div>
      </QueryForm>
      <div aria-busy={loading} class={loading && value ? "stale" : ""}>
        {error ? <Failure error={error} again={again} /> : !q ? <Hint /> : !value ? <Skeleton rows={4} label="Answering" tall /> : <Answer value={value} name={name} />}
      </div>
    </div>
  );
}

const Hint = () => <p class="lead">Type a question. The answer comes with the documents that it was written from, and with how sure the model is.</p>;

function Answer({ value, name }) {
  const knows = value.answer !== null;
  return (
    <article class="answer">
      <h2 class="sr">Answer</h2>
      <p class={knows ? "answer-text" : "answer-text unsure"} role="status">
        {knows ? value.answer : "It does not know."}
      </p>
      <p class="facts">
        <span>
          probability <span class="number">{percent(value.probability)}</span>
        </span>
        {!knows && value.written && <span>It would have written “{value.written}”.</span>}
      </p>
      <h2>What it read</h2>
      {!value.sources.length && <p class="muted">It found no document to read{value.note ? `: ${value.note}` : ""}.</p>}
      <ol class="sources">
        {value.sources.map((source, at) => (
          <Source key={source.id} source={source} rank={at + 1} name={name} />
        ))}
      </ol>
    </article>
  );
}

function Source({ source, rank, name }) {
  return (
    <li>
      <span class="rank" aria-hidden="true">
        {rank}
      </span>
      <div class="hit-body">
        <h3 class="hit-title">
          <a {...link({ doc: source.id, of: name })}>{titleOf(source)}</a>
        </h3>
        <p class="snippet">{source.snippet}</p>
        <p class="facts">
          <span class="meter wide" aria-hidden="true">
            <span style={{ width: `${100 * source.share}%` }} />
          </span>
          <span>
            <span class="number">{percent(source.share)}</span> of the weight
          </span>
        </p>
        {source.matches.length > 0 && <Attended matches={source.matches} />}
      </div>
    </li>
  );
}

/** For each token of the question, the token of the document that it attends to most. */
function Attended({ matches }) {
  const share = scale(matches.map(([, , weight]) => weight));
  return (
    <details>
      <summary>Which tokens it attends to</summary>
      <p class="tokens">
        {matches.map(([asked, read, weight], at) => (
          <span key={at} class={`token ${shade(share(weight))}`} title={score(weight)}>
            {asked} → {read}
          </span>
        ))}
      </p>
    </details>
  );
}
