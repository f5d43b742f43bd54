// Numbers and names as a person reads them.

const GROUPED = new Intl.NumberFormat("en-GB");

export const count = (number) => GROUPED.format(number);

export const many = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A score with three digits that matter, never as 1e-7 unless it is that small. */
export function score(number) {
  if (number === 0 || !Number.isFinite(number)) return String(number ?? "");
  const size = Math.abs(number);
  if (size >= 1000) return count(Math.round(number));
  if (size < 1e-4) return number.toExponential(1).replace("-", "−").replace("-", "−");
  return number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3).replace("-", "−");
}

/** A probability as a share of a hundred. */
export function percent(probability) {
  if (!Number.isFinite(probability)) return "";
  const share = 100 * probability;
  if (share >= 99.95) return "100 %";
  if (share >= 9.995) return `${share.toFixed(0)} %`;
  if (share >= 0.0995) return `${share.toFixed(1)} %`;
  if (share >= 0.001) return `${share.toFixed(3)} %`;
  return share > 0 ? "< 0.001 %" : "0 %";
}

/** A measure with three digits, as tables of the field have it: .732 */
export const measure = (number) => (Number.isFinite(number) ? number.toFixed(3).replace(/^(-?)0\./, "$1.") : "");

export const short = (text, most) => ([...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text);
