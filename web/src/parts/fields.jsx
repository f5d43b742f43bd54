// Fields that several views have.
import { useEffect, useState } from "preact/hooks";
import { many } from "../logic/format.js";
import { MOST } from "../logic/url.js";
import { ready, retrievers } from "../state.js";

/** The field for a question with its button; what stands in the address stands in it. */
export function QueryForm({ value, onSubmit, label, action, placeholder, children }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const submit = (event) => {
    event.preventDefault();
    onSubmit(text.trim());
  };
  return (
    <form class="query" role="search" onSubmit={submit}>
      <div class="query-row">
        <label class="sr" for="query">
          {label}
        </label>
        <input
          id="query"
          data-main-field
          type="search"
          autocomplete="off"
          spellcheck={false}
          enterkeyhint="search"
          maxlength={4000}
          value={text}
          placeholder={placeholder}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button type="submit" class="main">
          {action}
        </button>
      </div>
      {children}
    </form>
  );
}

/** Which retrievers search: one to three of them. */
export function Picker({ chosen, onChange }) {
  const toggle = (name) => {
    const next = chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name];
    if (next.length) onChange(next.slice(-MOST));
  };
  return (
    <fieldset class="picker">
      <legend class="sr">Retrievers, up to three side by side</legend>
      {retrievers.value.map((one) => (
        <label key={one.name} class={one.state === "ready" ? "chip" : "chip off"} title={about(one)}>
          <input
            type="checkbox"
            class="sr"
            checked={chosen.includes(one.name)}
            disabled={one.state !== "ready"}
            onChange={() => toggle(one.name)}
          />
          <span>{one.name}</span>
        </label>
      ))}
    </fieldset>
  );
}

const about = (one) => (one.state === "ready" ? `${one.kind}, ${many(one.documents, "document")}` : `It is ${one.state}.`);

/** One retriever of those that fit. */
export function Choice({ id, label, value, onChange, fits = () => true }) {
  return (
    <span class="field inline">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {ready.value.filter(fits).map((one) => (
          <option key={one.name} value={one.name}>
            {one.name}
          </option>
        ))}
      </select>
    </span>
  );
}
