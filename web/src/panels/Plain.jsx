// The data of a panel of an unknown kind: names and values, tables inside of tables.

const KNOWN = ["kind", "system", "about"];
const MOST = 50;

export const Plain = ({ panel }) => <Value value={Object.fromEntries(Object.entries(panel).filter(([name]) => !KNOWN.includes(name)))} />;

function Value({ value }) {
  if (value === null || typeof value !== "object") return <>{String(value)}</>;
  const entries = Array.isArray(value) ? value.map((part, at) => [at + 1, part]) : Object.entries(value);
  if (Array.isArray(value) && value.every((part) => part === null || typeof part !== "object")) return <>{value.slice(0, MOST).join(", ")}</>;
  return (
    <table class="plain-table">
      <tbody>
        {entries.slice(0, MOST).map(([name, part]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>
              <Value value={part} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
