"""Search with a generator over a trie of docids: the only package that knows both."""
