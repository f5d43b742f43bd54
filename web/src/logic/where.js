// Filters as a person writes them, `kind=class; year>=2020`, and as the server reads them.

const CONDITION = /^\s*([^<>=!]+?)\s*(>=|<=|!=|=|>|<)\s*(.*?)\s*$/s;
export const EXAMPLE = "kind=class; year>=2020";

/** The filter of a text: {value}, which is null without conditions, or {problem}. */
export function parseWhere(text) {
  const value = {};
  for (const part of text.split(";")) {
    if (!part.trim()) continue;
    const [, key, sign, right] = CONDITION.exec(part) ?? [];
    if (!key || !right) return { problem: `“${part.trim()}” is no condition.`, hint: `Write conditions like this: ${EXAMPLE}` };
    const own = operand(sign, right);
    if (key in value) value[key] = { ...table(value[key]), ...table(own) };
    else value[key] = own;
  }
  return { value: Object.keys(value).length ? value : null };
}

/** The text with one more condition; a condition that is there already is not repeated. */
export function withCondition(text, key, value) {
  const parts = text.split(";").map((part) => part.trim()).filter(Boolean);
  const condition = `${key}=${value}`;
  return parts.includes(condition) ? text : [...parts, condition].join("; ");
}

function operand(sign, right) {
  if (sign !== "=") return `${sign}${right}`;
  const choices = right.split(",").map((part) => part.trim()).filter(Boolean);
  return choices.length > 1 ? choices : right;
}

function table(own) {
  if (typeof own !== "string") return Array.isArray(own) ? { "=": own } : own;
  const [, sign = "=", right] = /^(>=|<=|!=|=|>|<)?(.*)$/s.exec(own);
  return { [sign]: right };
}
