// Measured results: tables that can be sorted, with the interval of the chosen measure drawn beside each row.
import { useState } from "preact/hooks";
import { ask } from "../api.js";
import { count, measure as digits } from "../logic/format.js";
import { axis, datasets, sorted } from "../logic/tables.js";
import { Empty, Failure, Skeleton, sentence } from "../parts/states.jsx";
import { go, ready, state, useAnswer } from "../state.js";

const WIDTH = 200;

export function Results() {
  const { value, error, again } = useAnswer("results", (signal) => ask("v1/results", { signal }));
  if (error) return <Failure error={error} again={again} />;
  if (!value) return <Skeleton rows={8} label="Loading results" />;
  if (!value.tables.length)
    return (
      <Empty title={value.given ? "The folder of results has no tables." : "This server was started without results."}>
        <p>Measure something with triever experiment or triever compare, and start the server with --results FOLDER.</p>
      </Empty>
    );
  return <Tables tables={value.tables} />;
}

const nameOf = (table) => [table.name, table.split].join(" · ");

function Tables({ tables }) {
  const atHand = ready.value.map((one) => one.data);
  const known = datasets(tables, atHand);
  const data = known.find((one) => one.name === state.value.data)?.name ?? known[0].name;
  const of = tables.filter((table) => table.data === data);
  const table = of.find((one) => nameOf(one) === state.value.table) ?? of.find((one) => one.rows.length > 2) ?? of[0];
  return (
    <div class="results">
      <h1 class="sr">Results</h1>
      <div class="query-options">
        <span class="field inline">
          <label for="data">Corpus</label>
          <select id="data" value={data} onChange={(event) => go({ data: event.currentTarget.value, table: "" })}>
            {known.map(({ name }) => (
              <option key={name} value={name}>
                {name || "not named"}
                {atHand.includes(name) ? " (served here)" : ""}
              </option>
            ))}
          </select>
        </span>
        <span class="field inline">
          <label for="table">Table</label>
          <select id="table" value={nameOf(table)} onChange={(event) => go({ table: event.currentTarget.value })}>
            {of.map((one) => (
              <option key={nameOf(one)} value={nameOf(one)}>
                {nameOf(one)}
              </option>
            ))}
          </select>
        </span>
      </div>
      <Table key={nameOf(table)} table={table} />
    </div>
  );
}

function Table({ table }) {
  const { measures, lower_is_better: lower } = table;
  const [order, setOrder] = useState({ column: measures[0], down: !lower.includes(measures[0]) });
  const [drawn, setDrawn] = useState(measures[0]);
  const sort = (column) => {
    setOrder({ column, down: order.column === column ? !order.down : column !== "name" && !lower.includes(column) });
    if (measures.includes(column)) setDrawn(column);
  };
  const scale = axis(table.rows, drawn);
  const hasSeeds = table.rows.some((row) => row.seeds > 1);
  const costs = [
    ["seconds", "seconds"],
    ["queries_per_second", "queries/s"],
  ].filter(([column]) => table.rows.some((row) => Number.isFinite(row[column])));
  const Head = ({ column, children, ...rest }) => (
    <th scope="col" aria-sort={order.column === column ? (order.down ? "descending" : "ascending") : "none"} {...rest}>
      <button type="button" onClick={() => sort(column)}>
        {children}
        <span class="arrow" aria-hidden="true">
          {order.column === column ? (order.down ? "↓" : "↑") : ""}
        </span>
      </button>
    </th>
  );
  return (
    <section>
      <h2>{table.title || table.name}</h2>
      {table.about && <p class="panel-about">{sentence(table.about)}</p>}
      <div class="table-scroll" tabindex="0" role="region" aria-label="Table of results">
        <table class="results-table">
          <thead>
            <tr>
              <Head column="name">system</Head>
              <th scope="col" class="plot-head">
                <Axis scale={scale} drawn={drawn} />
              </th>
              {measures.map((name) => (
                <Head key={name} column={name} class="right">
                  {name}
                </Head>
              ))}
              {hasSeeds && (
                <Head column="seeds" class="right">
                  seeds
                </Head>
              )}
              {costs.map(([column, title]) => (
                <Head key={column} column={column} class="right">
                  {title}
                </Head>
              ))}
            </tr>
          </thead>
          <tbody>
            {sorted(table.rows, order.column, order.down).map((row) => (
              <tr key={row.name}>
                <th scope="row">{row.name}</th>
                <td class="plot">
                  <Interval scale={scale} score={row.scores[drawn]} />
                </td>
                {measures.map((name) => (
                  <td key={name} class={name === drawn ? "right chosen" : "right"}>
                    <Score score={row.scores[name]} />
                  </td>
                ))}
                {hasSeeds && <td class="right">{row.seeds}</td>}
                {costs.map(([column]) => (
                  <td key={column} class="right">
                    {Number.isFinite(row[column]) ? count(Math.round(row[column])) : ""}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="muted legend">
        Small numbers and lines show the 95 % interval over questions{hasSeeds && ", or the lowest and highest mean where there are several seeds"}.
        {lower.length > 0 && ` Lower is better for ${lower.join(", ")}.`}
      </p>
      <Orders orders={table.orders ?? []} />
    </section>
  );
}

const Score = ({ score }) =>
  score ? (
    <>
      <span class="number mean">{digits(score.mean)}</span>
      <span class="number interval">
        {digits(score.low)}–{digits(score.high)}
      </span>
    </>
  ) : (
    <span class="muted">–</span>
  );

function Interval({ scale, score }) {
  if (!scale || !score) return null;
  const x = (value) => 6 + scale.at(value) * (WIDTH - 12);
  return (
    <svg class="interval-plot" viewBox={`0 0 ${WIDTH} 24`} width={WIDTH} height="24" aria-hidden="true">
      {scale.ticks.map((tick) => (
        <line key={tick} class="grid" x1={x(tick)} x2={x(tick)} y1="0" y2="24" />
      ))}
      <line class="whisker" x1={x(score.low)} x2={x(score.high)} y1="12" y2="12" />
      <circle cx={x(score.mean)} cy="12" r="4" />
    </svg>
  );
}

function Axis({ scale, drawn }) {
  if (!scale) return drawn;
  const x = (value) => 6 + scale.at(value) * (WIDTH - 12);
  const ends = [scale.ticks[0], scale.ticks.at(-1)];
  return (
    <svg viewBox={`0 0 ${WIDTH} 30`} width={WIDTH} height="30" role="img" aria-label={`${drawn} with intervals`}>
      <text x={WIDTH / 2} y="11" text-anchor="middle" class="axis-name">
        {drawn}
      </text>
      {ends.map((tick, at) => (
        <text key={tick} x={x(tick)} y="27" text-anchor={at ? "end" : "start"}>
          {digits(tick) === ".000" ? "0" : digits(tick).replace(/0+$/, "")}
        </text>
      ))}
    </svg>
  );
}

function Orders({ orders }) {
  if (!orders.length) return null;
  return (
    <>
      <h3>What was expected</h3>
      <ul class="orders">
        {orders.map(({ statement, verdict }) => (
          <li key={statement}>
            <span class={`verdict ${verdict === "holds" ? "holds" : ""}`}>{verdict}</span>
            <span>{statement}</span>
          </li>
        ))}
      </ul>
    </>
  );
}
