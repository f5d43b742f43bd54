"""Search over (generator, trie): the only place where the two meet."""
