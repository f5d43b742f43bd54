// Documents are added and deleted, and a search shows that they are found or gone.
import { useEffect, useRef, useState } from "preact/hooks";
import { addDocument, deleteDocument, getDocument, search } from "../api.js";
import { count, many } from "../logic/format.js";
import { Choice } from "../parts/fields.jsx";
import { Empty, Failure } from "../parts/states.jsx";
import { byName, chosenOf, go, key, link, loadRetrievers, ready, state } from "../state.js";

const WORDS = 12; // of a new document, which are searched for
const HITS = 10;

export function Documents() {
  const [name] = chosenOf(state.value.names);
  const [done, setDone] = useState(null);
  if (!name) return <Empty title="No retriever is ready yet." />;
  const writable = ready.value.some((one) => one.writable);
  const own = byName(name);
  const run = async (change) => {
    setDone({ busy: true });
    try {
      setDone(await change());
      loadRetrievers();
    } catch (error) {
      setDone({ error });
    }
  };
  return (
    <div class="documents">
      <h1 class="sr">Documents</h1>
      {!writable && (
        <Empty title="This server can only be read.">
          <p>It was started without a key. Start it with the variable TRIEVER_KEY, and documents can be added and deleted here.</p>
        </Empty>
      )}
      <div class="query-options">
        <Choice id="in" label="Documents of" value={name} onChange={(next) => go({ names: [next] })} />
        <span class="muted" aria-live="polite">
          {count(own.documents)} documents
        </span>
        <form class="field inline" onSubmit={(event) => event.preventDefault()}>
          <label for="key">Key</label>
          <input
            id="key"
            type="password"
            autocomplete="off"
            aria-describedby="key-note"
            value={key.value}
            disabled={!writable}
            onInput={(event) => (key.value = event.currentTarget.value)}
          />
        </form>
        <span class="muted note" id="key-note">
          This page keeps it in memory, and forgets it when you leave.
        </span>
      </div>
      <div class="forms">
        <AddForm disabled={!writable} run={run} name={name} />
        <div>
          <DeleteForm disabled={!writable} run={run} name={name} />
          <div class="outcome" aria-live="polite">
            <Outcome done={done} name={name} />
          </div>
        </div>
      </div>
    </div>
  );
}

function AddForm({ disabled, run, name }) {
  const submit = (event) => {
    event.preventDefault();
    const form = event.currentTarget;
    const { id, title, text } = Object.fromEntries(new FormData(form));
    run(async () => {
      const own = { id: id.trim(), title: title.trim(), text };
      await addDocument(name, own, key.value);
      form.reset();
      return found(name, own);
    });
  };
  return (
    <form onSubmit={submit} aria-label="Add a document">
      <h2>Add a document</h2>
      <fieldset disabled={disabled}>
        <Field id="add-id" label="Id" name="id" required />
        <Field id="add-title" label="Title" name="title" />
        <span class="field">
          <label for="add-text">Text</label>
          <textarea id="add-text" name="text" rows="6" required />
        </span>
        <button type="submit" class="main">
          Add
        </button>
      </fieldset>
    </form>
  );
}

function DeleteForm({ disabled, run, name }) {
  const submit = (event) => {
    event.preventDefault();
    const form = event.currentTarget;
    const id = new FormData(form).get("id").trim();
    run(async () => {
      const old = await getDocument(name, id);
      await deleteDocument(name, id, key.value);
      form.reset();
      return { ...(await found(name, old)), deleted: true };
    });
  };
  return (
    <form onSubmit={submit} aria-label="Delete a document">
      <h2>Delete a document</h2>
      <fieldset disabled={disabled}>
        <Field id="delete-id" label="Id" name="id" required />
        <button type="submit" class="quiet">
          Delete
        </button>
      </fieldset>
    </form>
  );
}

const Field = ({ id, label, ...rest }) => (
  <span class="field">
    <label for={id}>{label}</label>
    <input id={id} autocomplete="off" spellcheck={false} {...rest} />
  </span>
);

/** What a search for the beginning of a document says about it: {id, query, rank, hits}. */
async function found(name, document) {
  const query = [document.title, ...document.text.split(/\s+/).slice(0, WORDS)].filter(Boolean).join(" ").slice(0, 300);
  const { results } = await search([name], query, HITS, null);
  const { hits } = results[0];
  return { id: document.id, query, rank: hits.findIndex((hit) => hit.id === document.id) + 1, hits: hits.length };
}

function Outcome({ done, name }) {
  const own = useRef();
  useEffect(() => own.current?.scrollIntoView({ block: "nearest" }), [done]);
  if (!done) return null;
  if (done.busy) return <p class="muted">One moment.</p>;
  if (done.error) return <Failure error={done.error} />;
  const { id, query, rank, hits, deleted } = done;
  return (
    <div class="notice success" ref={own}>
      <p class="notice-title">
        {deleted ? "Deleted" : "Added"}: {id}
      </p>
      <p>
        A search for its first words finds {many(hits, "document")}.{" "}
        {rank ? `It is at rank ${rank} of them.` : deleted ? "It is no longer among them." : "It is not among them: this retriever may need training to find it."}{" "}
        <a {...link({ view: "search", q: query, names: [name], where: "" })}>See the search</a>
      </p>
    </div>
  );
}
