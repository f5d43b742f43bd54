"""The page at /: the built one where there is one, or else a plain list of what is served."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

PAGE = Path(__file__).with_name("page")
"""Where the built page lies: index.html, and what it needs below assets/."""


def plain_page(rows: Iterable[tuple[str, str]]) -> str:
    """A page that lists retrievers, each with what is known of it, and says where the API is described."""
    listed = "\n".join(f"<li><strong>{escape(name)}</strong>: {escape(about)}</li>" for name, about in rows)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Triever</title>
<h1>Triever</h1>
<p>This server searches with:</p>
<ul>
{listed}
</ul>
<p>The API is described by <a href="/openapi.json">/openapi.json</a>. See also
<a href="/v1/retrievers">/v1/retrievers</a>, <a href="/readyz">/readyz</a>, <a href="/metrics">/metrics</a>.</p>
<p>To search:</p>
<pre>curl -s http://127.0.0.1:8000/v1/search -H 'Content-Type: application/json' -d '{{"query": "your question"}}'</pre>
</html>
"""
