"""Where an extra is not installed, its modules are not looked through for examples: they could not be imported."""

from __future__ import annotations

from importlib.util import find_spec

SERVER = ("fastapi", "prometheus_client", "uvicorn")
SERVER_MODULES = ("app", "bench", "bodies", "defaults", "guard", "metrics", "refusals", "served")
FRAMEWORKS = {
    "haystack": "haystack",
    "langchain": "langchain_core",
    "llamaindex": "llama_index",
    "mcp": "mcp",
    "mteb": "mteb",
    "pyterrier": "pyterrier",
    "ray": "ray",
    "ray_serve": "ray",
    "ray_train": "ray",
}
"""For each adapter the package that it needs."""

collect_ignore = [] if all(map(find_spec, SERVER)) else [f"src/triever/serve/{name}.py" for name in SERVER_MODULES]
collect_ignore += [] if find_spec("triton") else ["src/triever/models/triton_kernels.py"]
collect_ignore += [
    f"src/triever/integrations/{adapter}.py" for adapter, package in FRAMEWORKS.items() if not find_spec(package)
]
