// Named parts that add up to a score, as bars on one scale; those below zero go to the left.
import { score } from "../logic/format.js";

const MOST = 12;

export function Bars({ parts, total }) {
  const all = Object.entries(parts).sort((one, other) => Math.abs(other[1]) - Math.abs(one[1]));
  const rest = all.slice(MOST);
  const rows = rest.length ? [...all.slice(0, MOST), [`${rest.length} more`, rest.reduce((sum, [, weight]) => sum + weight, 0)]] : all;
  if (!rows.length) return <p class="muted">This retriever does not say.</p>;
  const low = Math.min(0, ...rows.map(([, weight]) => weight));
  const high = Math.max(0, ...rows.map(([, weight]) => weight));
  const span = high - low || 1;
  return (
    <table class="bars">
      <caption class="sr">Parts of the score and their weights</caption>
      <tbody>
        {rows.map(([name, weight]) => (
          <tr key={name}>
            <th scope="row" title={name}>
              {name}
            </th>
            <td class="bar-cell">
              <span
                class={weight < 0 ? "bar below" : "bar"}
                style={{ left: `${(100 * (Math.min(weight, 0) - low)) / span}%`, width: `${(100 * Math.abs(weight)) / span}%` }}
              />
            </td>
            <td class="number">{score(weight)}</td>
          </tr>
        ))}
      </tbody>
      <tfoot>
        <tr>
          <th scope="row">score</th>
          <td />
          <td class="number">{score(total)}</td>
        </tr>
      </tfoot>
    </table>
  );
}
