// The beam as a tree, level by level: what was kept, what ended as a docid, and what was pruned.
import { useState } from "preact/hooks";
import { chosen, layout, steps } from "../logic/beam.js";
import { count, many, short } from "../logic/format.js";
import { titleOf } from "../parts/hits.jsx";

const ROW = 24;
const LETTER = 7.3;
const HEAD = 40;
const WIDEST = 18;
const WAYS = [
  ["hits", "Results only"],
  ["best", "Best others too"],
  ["all", "All"],
];

export function Beam({ panel, hit, hits, choose }) {
  const [way, setWay] = useState("best");
  const [levels, setLevels] = useState(panel.levels.length);
  const depth = Math.min(levels, panel.levels.length);
  const heads = panel.levels.map(counts);
  const tree = layout(chosen(panel, way, depth), { letter: LETTER, gap: 44, root: 30, widest: WIDEST + 16, heads, first: hit.id });
  return (
    <div class="beam">
      <Spelled panel={panel} hit={hit} />
      <div class="beam-controls">
        <fieldset class="segments">
          <legend class="sr">How much of the beam is drawn</legend>
          {WAYS.map(([name, title]) => (
            <label key={name}>
              <input type="radio" class="sr" name="way" checked={way === name} onChange={() => setWay(name)} />
              <span>{title}</span>
            </label>
          ))}
        </fieldset>
        <Stepper depth={depth} most={panel.levels.length} setDepth={setLevels} />
      </div>
      <Tree panel={panel} tree={tree} hit={hit} hits={hits} choose={choose} />
      <p class="legend muted">
        <Dot kind="lit" /> leads to this result <Dot kind="kept" /> was kept <Dot kind="ended" /> is a docid that was ranked{" "}
        <Dot kind="pruned" /> was pruned. A line is as thick as the prefix is probable.
      </p>
    </div>
  );
}

const Dot = ({ kind }) => (
  <svg class="dot" viewBox="0 0 12 12" aria-hidden="true">
    <circle class={kind} cx="6" cy="6" r="4" />
  </svg>
);

/** The docid of a hit, symbol by symbol, with the probability of each behind those before it. */
function Spelled({ panel, hit }) {
  const path = steps(panel, hit.id);
  if (!path.length) return null;
  return (
    <ol class="spelled" aria-label="Its docid, symbol by symbol">
      {path.map((one, at) => (
        <li key={at} title={`${one.docid}: ${many(one.documents, "document")} below`}>
          <code>{short(one.symbol, 24)}</code>
          <span class="meter">
            <span style={{ width: `${100 * Math.min(1, one.step)}%` }} />
          </span>
          <span class="number">{one.text}</span>
          <span class="muted">{one.documents === 1 ? "one document" : many(one.documents, "document")}</span>
        </li>
      ))}
      {!path.at(-1).ends && (
        <li class="rest">
          <code>…</code>
          <span class="muted">the only docid left</span>
        </li>
      )}
    </ol>
  );
}

function Stepper({ depth, most, setDepth }) {
  if (most < 2) return null;
  return (
    <div class="stepper" role="group" aria-label="Steps of the search">
      <button type="button" class="quiet" aria-label="One step back" disabled={depth <= 1} onClick={() => setDepth(depth - 1)}>
        ‹
      </button>
      <span aria-live="polite">
        step {depth} of {most}
      </span>
      <button type="button" class="quiet" aria-label="One step on" disabled={depth >= most} onClick={() => setDepth(depth + 1)}>
        ›
      </button>
    </div>
  );
}

function Tree({ panel, tree, hit, hits, choose }) {
  const places = new Map(tree.nodes.map((node) => [node.id, node]));
  const ranks = new Map(hits.map((one, at) => [one.id, at + 1]));
  const y = (node) => HEAD + node.y * ROW + ROW / 2;
  const root = { x: 10, y: tree.root.y };
  const [width, height] = [tree.width + 10, HEAD + tree.rows * ROW + 8];
  const lit = (node) => node.hits.includes(hit.id) && node.outcome !== "pruned";
  const drawn = [...tree.nodes].sort((one, other) => lit(one) - lit(other));
  return (
    <div class="tree-scroll" tabindex="0" role="region" aria-label="The beam as a tree">
      <svg class="beam-tree" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={words(panel, hit)}>
        {tree.columns.map((at, level) => (
          <g key={level} class="level-head" transform={`translate(${at - 5} 0)`}>
            <text y="13">{`symbol ${level + 1}`}</text>
            <text y="28" class="muted">{counts(panel.levels[level])}</text>
          </g>
        ))}
        {drawn.map((node) => {
          const above = places.get(node.above) ?? root;
          const [y0, x1, y1] = [y(above), node.x, y(node)];
          const from = above === root ? root.x : above.x + labelWidth(above);
          const bend = (from + x1) / 2;
          const line = y0 === y1 ? `M${from} ${y0}H${x1}` : `M${from} ${y0}C${bend} ${y0} ${bend} ${y1} ${x1} ${y1}`;
          return <path key={node.id} class={`edge ${kindOf(node, lit)}`} d={line} stroke-width={0.8 + 5 * Math.sqrt(node.share)} />;
        })}
        <circle class="root" cx={root.x} cy={y(root)} r="4" />
        {tree.nodes.map((node) => (
          <Node key={node.id} node={node} kind={kindOf(node, lit)} x={node.x} y={y(node)} rank={node.ends ? ranks.get(node.hits[0]) : undefined} choose={choose} hits={hits} />
        ))}
      </svg>
    </div>
  );
}

const labelWidth = (node) => 18 + (short(node.symbol, WIDEST).length + node.weight.length) * LETTER;
const kindOf = (node, lit) => (lit(node) ? "lit" : node.outcome);
const counts = (level) => [level.kept && `${count(level.kept)} kept`, level.ended && `${count(level.ended)} ended`, level.pruned && `${count(level.pruned)} pruned`].filter(Boolean).join(", ");

function Node({ node, kind, x, y, rank, choose, hits }) {
  const target = node.hits.length === 1 ? node.hits[0] : undefined;
  const title = target && hits.find((one) => one.id === target);
  const about = `${node.docid || node.symbol}: ${node.weight}, ${many(node.documents, "document")} below, ${node.outcome}`;
  return (
    <g class={`node ${kind}${target ? " leads" : ""}`} transform={`translate(${x} ${y})`} onClick={target ? () => choose(target) : undefined}>
      <title>{title ? `${about}; leads to ${titleOf(title)}` : about}</title>
      <circle r="4" />
      <text class="symbol" x="10" dy="0.34em">
        {short(node.symbol, WIDEST)}
      </text>
      <text class="share" x={14 + short(node.symbol, WIDEST).length * LETTER} dy="0.34em">
        {node.weight}
        {rank && ` · rank ${rank}`}
      </text>
    </g>
  );
}

/** The tree in words, for those who do not see it. */
function words(panel, hit) {
  const path = steps(panel, hit.id);
  const levels = panel.levels.map((level, at) => `symbol ${at + 1}: ${counts(level)}`).join("; ");
  const own = path.length ? ` The docid of this result: ${path.map((one) => `${one.symbol} (${one.text})`).join(", ")}.` : "";
  return `The prefixes that the search looked at. ${levels}.${own}`;
}
