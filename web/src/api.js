// How the page asks the server: JSON both ways, and every failure as {code, message, hint}.

/** What the server, or the way to it, has refused. */
export class Refused extends Error {
  constructor(code, message, hint) {
    super(message);
    this.code = code;
    this.hint = hint;
  }
}

/** The answer to a request; it throws `Refused`, or an AbortError where the signal ended it. */
export async function ask(path, { method, body, key, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (body) headers["Content-Type"] = "application/json";
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { method: method ?? (body ? "POST" : "GET"), headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("unreachable", "The server does not answer.", "Check that it runs, then try again.");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer) return answer;
  const status = `The server answered with status ${response.status}.`;
  throw new Refused(answer?.code ?? "unreadable", answer?.message ?? status, answer?.hint ?? "Look into the server’s log.");
}

export const search = (names, query, k, where, signal) =>
  names.length > 1
    ? ask("v1/compare", { body: { retrievers: names, query, k, where }, signal })
    : ask("v1/search", { body: { retriever: names[0], query, k, where }, signal }).then((answer) => ({
        query,
        results: [{ ...answer.results[0], retriever: answer.retriever, snapshot: answer.snapshot }],
      }));

export const explain = (retriever, query, k, where, signal) =>
  ask("v1/explain", { body: { retriever, query, k, where }, signal });

export const answer = (retriever, question, signal) =>
  ask("v1/answer", { body: { retriever, question }, signal }).then((body) => body.answers[0]);

export const getDocument = (retriever, id, signal) =>
  ask(`v1/documents?${new URLSearchParams({ id, retriever })}`, { signal }).then((body) => body.documents[0]);

export const browse = (retriever, prefix, offset, signal) => {
  const asked = new URLSearchParams([...prefix.map((symbol) => ["prefix", symbol]), ["offset", offset], ["limit", 50], ["samples", 2]]);
  return ask(`v1/retrievers/${retriever.split("/").map(encodeURIComponent).join("/")}/docids?${asked}`, { signal });
};

export const addDocument = (retriever, document, key) =>
  ask("v1/documents", { method: "POST", body: { retriever, documents: [document] }, key });

export const deleteDocument = (retriever, id, key) =>
  ask(`v1/documents?${new URLSearchParams({ id, retriever })}`, { method: "DELETE", key });
