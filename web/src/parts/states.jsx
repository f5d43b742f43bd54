// What a view shows while there is nothing else: it loads, it failed, or nobody has asked yet.

export function Failure({ error, again }) {
  return (
    <div class="notice failure" role="alert">
      <p class="notice-title">{sentence(error.message)}</p>
      {error.hint && <p>{sentence(error.hint)}</p>}
      {again && (
        <button type="button" class="quiet" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Rows as high as those that will come, so that nothing jumps. */
export function Skeleton({ rows = 3, label = "Loading", tall = false }) {
  return (
    <div class={tall ? "skeleton tall" : "skeleton"} role="status" aria-label={label}>
      {Array.from({ length: rows }, (_, row) => (
        <div key={row} class="bone" />
      ))}
    </div>
  );
}

export const Empty = ({ title, children }) => (
  <div class="notice">
    <p class="notice-title">{title}</p>
    {children}
  </div>
);

/** Texts of the server begin small and end without a stop; on the page they are sentences. */
export function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}
