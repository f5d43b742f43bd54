// What all views share: the address as state, and what is served.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { ask } from "./api.js";
import { format, parse } from "./logic/url.js";

export const state = signal(parse(location.search));
export const served = signal({ retrievers: null, error: null });
export const key = signal(""); // for changes of documents: it is nowhere but here, and ends with the page

addEventListener("popstate", () => (state.value = parse(location.search)));

export const href = (change) => format({ ...state.value, ...change });

/** Go to another state; `replace` leaves no step for the back button. */
export function go(change, { replace = false } = {}) {
  const next = { ...state.value, ...change };
  const address = format(next);
  history[replace ? "replaceState" : "pushState"](null, "", address === "./" ? location.pathname : address);
  state.value = next;
}

/** What a link does: it goes there without loading the page again, unless somebody wants another tab. */
export const link = (change) => ({
  href: href(change),
  onClick: (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const elsewhere = change.view && change.view !== state.value.view;
    go(change);
    if (elsewhere) scrollTo(0, 0);
  },
});

export const retrievers = computed(() => served.value.retrievers ?? []);
export const ready = computed(() => retrievers.value.filter((one) => one.state === "ready"));
export const byName = (name) => retrievers.value.find((one) => one.name === name);

/** The retrievers that are chosen, of those that fit; the first one where none is. */
export function chosenOf(names, fits = () => true) {
  const fitting = ready.value.filter(fits);
  const known = names.filter((name) => fitting.some((one) => one.name === name));
  return known.length ? known : fitting.slice(0, 1).map((one) => one.name);
}

let waiting;
export async function loadRetrievers() {
  clearTimeout(waiting);
  try {
    const answer = await ask("v1/retrievers");
    served.value = { retrievers: answer.retrievers, error: null };
    if (answer.retrievers.some((one) => one.state === "loading")) waiting = setTimeout(loadRetrievers, 1000);
  } catch (error) {
    served.value = { retrievers: served.value.retrievers, error };
  }
}

const TITLES = { search: "Search", why: "Why", docids: "Docids", ask: "Ask", results: "Results", documents: "Documents" };
effect(() => {
  const { view, q } = state.value;
  document.title = [q, TITLES[view], "Triever"].filter(Boolean).join(" · ");
});

/**
 * What `load` gives for a key: {value, error, loading, again}. A null key asks for nothing. While another key is loaded
 * the old value stays, so that nothing jumps; an answer that comes too late is dropped.
 */
export function useAnswer(key, load) {
  const [answer, setAnswer] = useState({ key: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (key === null) return setAnswer({ key });
    const control = new AbortController();
    setAnswer((old) => ({ value: old.value, loading: true, key }));
    load(control.signal).then(
      (value) => control.signal.aborted || setAnswer({ key, value }),
      (error) => control.signal.aborted || setAnswer({ key, error }),
    );
    return () => control.abort();
  }, [key, turn]);
  const isNew = answer.key !== key;
  return { value: answer.value, error: isNew ? undefined : answer.error, loading: key !== null && (isNew || !!answer.loading), again: () => setTurn(turn + 1) };
}
