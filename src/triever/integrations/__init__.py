"""Adapters: retrievers of Triever inside of other frameworks. Each needs its own extra, such as `triever[langchain]`.

    sources.py      what every adapter takes: a saved folder, a server's address, or a retriever
    extra.py        what is said where the package of a framework is missing
    langchain.py    a retriever for LangChain
    llamaindex.py   a retriever for LlamaIndex
    haystack.py     a component for Haystack
    pyterrier.py    a transformer for PyTerrier
    mteb.py         a model for MTEB's tasks of retrieval
    ray.py          shards in processes of Ray, on many machines
    mcp.py          an MCP server, which gives language models tools to search with

Nothing here is imported by `import triever`. A module needs its framework as soon as it is imported.
"""
