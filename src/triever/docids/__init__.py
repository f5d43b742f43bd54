"""Identifiers for documents: schemes that give them, and the set of them as a trie."""
