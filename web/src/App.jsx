import { useEffect } from "preact/hooks";
import { Failure, Skeleton } from "./parts/states.jsx";
import { link, loadRetrievers, served, state } from "./state.js";
import { Ask } from "./views/Ask.jsx";
import { DocumentView } from "./views/DocumentView.jsx";
import { Docids } from "./views/Docids.jsx";
import { Documents } from "./views/Documents.jsx";
import { Results } from "./views/Results.jsx";
import { Search } from "./views/Search.jsx";
import { Why } from "./views/Why.jsx";

const VIEWS = { search: Search, why: Why, docids: Docids, ask: Ask, results: Results, documents: Documents };
const NAV = [
  ["search", "Search"],
  ["docids", "Docids"],
  ["ask", "Ask"],
  ["results", "Results"],
  ["documents", "Documents"],
];

export function App() {
  useEffect(() => {
    addEventListener("keydown", focusSearch);
    return () => removeEventListener("keydown", focusSearch);
  }, []);
  const { view, doc } = state.value;
  const View = VIEWS[view];
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <Header view={view} />
      <main id="main" tabindex="-1">
        <Loaded>
          <View />
        </Loaded>
      </main>
      {doc && served.value.retrievers && <DocumentView />}
    </>
  );
}

function Header({ view }) {
  const current = view === "why" ? "search" : view;
  return (
    <header class="top">
      <a class="brand" {...link({ view: "search", q: "", hit: "", doc: "", where: "" })}>
        <Mark />
        Triever
      </a>
      <nav aria-label="Views">
        {NAV.map(([name, title]) => (
          <a key={name} aria-current={current === name ? "page" : undefined} {...link({ view: name, hit: "", doc: "" })}>
            {title}
          </a>
        ))}
      </nav>
    </header>
  );
}

const Mark = () => (
  <svg class="mark" viewBox="0 0 16 16" aria-hidden="true">
    <path d="M8 3v4.5M8 7.5 3 13M8 7.5l5 5.5" />
    <circle cx="8" cy="2.5" r="2" />
    <circle cx="3" cy="13" r="2" />
    <circle cx="13" cy="13" r="2" />
  </svg>
);

/** The view, once it is known what is served. */
function Loaded({ children }) {
  const { retrievers, error } = served.value;
  if (error && !retrievers) return <Failure error={error} again={loadRetrievers} />;
  if (!retrievers) return <Skeleton rows={5} label="Asking the server what it has" />;
  return children;
}

/** A slash goes to the field of the view, as in many places of the web. */
function focusSearch(event) {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
  const field = document.querySelector("[data-main-field]");
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
}
