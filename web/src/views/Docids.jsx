// The tree of docids: what follows a prefix, how many documents lie below, and which of them a search went to.
import { useEffect, useRef, useState } from "preact/hooks";
import { browse, explain } from "../api.js";
import { count, many } from "../logic/format.js";
import { ROOT, keyOf, lights, move, prefixOf, rows } from "../logic/tree.js";
import { Choice, QueryForm } from "../parts/fields.jsx";
import { titleOf } from "../parts/hits.jsx";
import { Empty, Failure, Skeleton } from "../parts/states.jsx";
import { byName, chosenOf, go, link, state, useAnswer } from "../state.js";

const hasDocids = (one) => one.docids;

export function Docids() {
  const { q, names } = state.value;
  const [name] = chosenOf(names, hasDocids);
  if (!name)
    return (
      <Empty title="No retriever here writes docids.">
        <p>Serve a generative, contextual or GDR retriever, and its docids can be browsed here.</p>
      </Empty>
    );
  return (
    <div class="docids">
      <h1 class="sr">Docids</h1>
      <QueryForm value={q} label="Light up the paths of a search" action="Light up" placeholder="Search, and its paths light up" onSubmit={(text) => go({ q: text })}>
        <div class="query-options">
          <Choice id="of" label="Docids of" value={name} fits={hasDocids} onChange={(next) => go({ names: [next] })} />
        </div>
      </QueryForm>
      <Browser key={`${name} ${byName(name)?.fingerprint}`} name={name} q={q} />
    </div>
  );
}

function Browser({ name, q }) {
  const tree = useTree(name);
  const searched = useAnswer(q ? JSON.stringify([name, q]) : null, (signal) => explain(name, q, 10, null, signal));
  const panel = searched.value?.explanation.panels.find((one) => one.kind === "beam");
  const light = lights(q ? panel : null);
  useEffect(() => {
    if (q && panel?.paths.length) tree.unfold(panel.paths[0].prefix);
  }, [panel]);
  const root = tree.nodes.get(ROOT);
  if (tree.error && !root) return <Failure error={tree.error} again={() => tree.load(ROOT)} />;
  if (!root) return <Skeleton rows={10} label="Loading docids" />;
  return (
    <div class="docid-view">
      <section aria-label="Tree of docids" class="tree-side">
        <p class="summary" role="status">
          {many(root.documents, "document")} below {many(root.total, "first symbol")}
          {searched.loading && " · searching"}
        </p>
        {tree.error && <Failure error={tree.error} />}
        <Tree tree={tree} light={light} name={name} />
      </section>
      <aside class="lit-hits" aria-label="Paths of the search">
        {searched.error ? <Failure error={searched.error} again={searched.again} /> : <LitHits q={q} answer={searched.value} panel={panel} unfold={tree.unfold} busy={searched.loading} />}
      </aside>
    </div>
  );
}

/** The nodes that were loaded, those that are open, and how to get more. */
function useTree(name) {
  const [nodes, setNodes] = useState(new Map());
  const [open, setOpen] = useState(new Set());
  const [focus, setFocus] = useState(null);
  const [error, setError] = useState(null);
  const gone = useRef(false);
  const known = useRef(nodes);
  known.current = nodes;
  const load = async (key, offset = 0) => {
    try {
      const page = await browse(name, prefixOf(key), offset);
      if (gone.current) return;
      setError(null);
      setNodes((old) => {
        const before = old.get(key);
        const branches = [...(offset ? (before?.branches ?? []) : []), ...page.branches];
        return new Map(old).set(key, { ...page, branches, pinned: before?.pinned ?? [] });
      });
      return page;
    } catch (problem) {
      if (!gone.current) setError(problem);
    }
  };
  /** A branch that is on a later page, such as one of thousands of atomic docids, is shown all the same. */
  const pin = async (prefix) => {
    const above = keyOf(prefix.slice(0, -1));
    const page = known.current.get(above) ?? (await load(above));
    const symbol = prefix.at(-1);
    if (!page || [...page.branches, ...(page.pinned ?? [])].some((branch) => branch.symbol === symbol)) return;
    const node = await browse(name, prefix, 0).catch(() => null);
    if (!node || gone.current) return;
    const branch = { symbol, text: node.symbols.at(-1), documents: node.documents, ends: node.ends, samples: node.samples };
    setNodes((old) => new Map(old).set(above, { ...old.get(above), pinned: [...(old.get(above)?.pinned ?? []), branch] }));
  };
  useEffect(() => {
    load(ROOT);
    return () => (gone.current = true);
  }, []);
  const change = (key, isOpen) =>
    setOpen((old) => {
      const next = new Set(old);
      next[isOpen ? "add" : "delete"](key);
      return next;
    });
  const fold = (key) => change(key, false);
  const unfoldOne = (key) => {
    change(key, true);
    if (!known.current.has(key)) load(key);
  };
  const unfold = async (prefix) => {
    for (let length = 1; length <= prefix.length; length++) {
      await pin(prefix.slice(0, length));
      if (length < prefix.length) change(keyOf(prefix.slice(0, length)), true);
    }
    setFocus(keyOf(prefix));
  };
  return { nodes, open, error, load, fold, unfoldOne, unfold, focus, setFocus };
}

function Tree({ tree, light, name }) {
  const own = useRef();
  const visible = rows(tree.nodes, tree.open);
  const current = visible.some((row) => row.key === tree.focus) ? tree.focus : visible[0]?.key;
  const focusRow = (key) => {
    tree.setFocus(key);
    own.current.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
  };
  const onKey = (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return act(visible.find((row) => row.key === current));
    }
    const next = move(visible, tree.open, current, event.key);
    if (!next) return;
    event.preventDefault();
    if (next.focus) focusRow(next.focus);
    if (next.open) tree.unfoldOne(next.open);
    if (next.close) tree.fold(next.close);
  };
  const act = (row) => {
    if (!row) return;
    if (row.more) return tree.load(row.of, tree.nodes.get(row.of).branches.length);
    if (row.branch?.ends) return row.branch.samples.length && go({ doc: row.branch.samples[0].id, of: name });
    if (row.branch) tree.open.has(row.key) ? tree.fold(row.key) : tree.unfoldOne(row.key);
  };
  return (
    <ul class="docid-tree" role="tree" aria-label="Docids" ref={own} onKeyDown={onKey}>
      {visible.map((row) => (
        <Row key={row.key} row={row} open={tree.open.has(row.key)} current={row.key === current} light={light} act={() => (tree.setFocus(row.key), act(row))} />
      ))}
    </ul>
  );
}

function Row({ row, open, current, light, act }) {
  const common = { "data-key": row.key, role: "treeitem", "aria-level": row.depth + 1, tabindex: current ? 0 : -1, style: { "--depth": row.depth } };
  if (row.loading)
    return (
      <li {...common} class="branch quiet-row">
        Loading
      </li>
    );
  if (row.more)
    return (
      <li {...common} class="branch more" onClick={act}>
        Show more of the other {count(row.more)}
      </li>
    );
  const { branch } = row;
  const seen = light.seen.get(row.key);
  const hits = light.paths.get(row.key);
  const kind = hits ? "lit" : (seen?.outcome ?? "");
  return (
    <li
      {...common}
      class={`branch ${kind}`}
      aria-expanded={branch.ends ? undefined : open}
      aria-setsize={row.siblings}
      aria-posinset={row.place}
      onClick={act}
    >
      <span class="fold" aria-hidden="true">
        {branch.ends ? "" : open ? "−" : "+"}
      </span>
      <code class="docid">{branch.text}</code>
      <span class="size" aria-hidden="true">
        <span style={{ width: `${Math.max(2, 100 * row.share)}%` }} />
      </span>
      <span class="number">
        {count(branch.documents)}
        <span class="sr"> documents</span>
      </span>
      <span class="share number">{seen?.weight}</span>
      <span class="samples">{branch.samples.map(titleOf).join(" · ")}</span>
    </li>
  );
}

/** Bring a row into sight, once it is drawn. */
const scrollToRow = (prefix) =>
  requestAnimationFrame(() => document.querySelector(`[data-key="${keyOf(prefix)}"]`)?.scrollIntoView({ block: "nearest" }));

function LitHits({ q, answer, panel, unfold, busy }) {
  if (!q)
    return (
      <div class="muted">
        <p>Arrows walk through the tree, and Enter opens a document.</p>
        <p>A search lights up the paths that its results are on, and says how probable each prefix was.</p>
      </div>
    );
  if (!answer) return busy ? <Skeleton rows={6} label="Searching" /> : null;
  if (!panel) return <p class="muted">This retriever does not say which docids it looked at.</p>;
  const titles = new Map(answer.hits.map((hit) => [hit.id, titleOf(hit)]));
  return (
    <div class={busy ? "stale" : ""}>
      <h2>Paths of the results</h2>
      <ol class="paths">
        {panel.paths.map(({ id, prefix }, at) => (
          <li key={id}>
            <button type="button" onClick={() => unfold(prefix).then(() => scrollToRow(prefix))}>
              <span class="rank">{at + 1}</span>
              <span>
                {titles.get(id)}
                <code class="docid">{answer.hits[at]?.docid}</code>
              </span>
            </button>
          </li>
        ))}
      </ol>
      <p>
        <a class="why" {...link({ view: "why", hit: panel.paths[0]?.id ?? "" })}>
          See the whole beam
        </a>
      </p>
    </div>
  );
}
