"""Where the server is not installed, its modules are not looked through for examples: they could not be imported."""

from __future__ import annotations

from importlib.util import find_spec

needed = ("fastapi", "prometheus_client", "uvicorn")
modules = ("app", "bench", "bodies", "defaults", "guard", "metrics", "refusals", "served")
collect_ignore = [] if all(map(find_spec, needed)) else [f"src/triever/serve/{module}.py" for module in modules]
