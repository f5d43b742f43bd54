// A whole document over whatever is behind it. Escape, the button and the back button close it.
import { useEffect, useRef } from "preact/hooks";
import { getDocument } from "../api.js";
import { Metadata, titleOf } from "../parts/hits.jsx";
import { Failure, Skeleton } from "../parts/states.jsx";
import { chosenOf, go, link, state, useAnswer } from "../state.js";

export function DocumentView() {
  const { doc, of, q } = state.value;
  const [name] = chosenOf([of]);
  const own = useRef();
  const { value, error, again } = useAnswer(name ? JSON.stringify([name, doc]) : null, (signal) => getDocument(name, doc, signal));
  useEffect(() => own.current.showModal(), []);
  const close = () => go({ doc: "", of: "" });
  const outside = (event) => event.target === own.current && close();
  return (
    <dialog ref={own} class="document" aria-label="Document" onClose={close} onClick={outside}>
      <article tabindex="-1" autofocus>
        <header>
          <p class="muted">{doc}</p>
          <button type="button" class="quiet" onClick={close}>
            Close
          </button>
        </header>
        {error ? <Failure error={error} again={again} /> : !value ? <Skeleton rows={4} label="Loading the document" /> : <Whole document={value} />}
        {q && name && (
          <p class="facts">
            <a class="why" {...link({ view: "why", hit: doc, names: [name], doc: "", of: "" })}>
              Why was it found?
            </a>
          </p>
        )}
      </article>
    </dialog>
  );
}

function Whole({ document }) {
  return (
    <>
      <h1>{titleOf(document)}</h1>
      <p class="facts">
        <Metadata values={document.metadata} most={8} />
      </p>
      <div class="text">{document.text}</div>
      {document.expansions.length > 0 && (
        <details>
          <summary>Further texts that stand for it ({document.expansions.length})</summary>
          <ul class="plain">
            {document.expansions.map((text, at) => (
              <li key={at}>{text}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}
