"""Training: the only loop, and what it is made of. Knows no search and no retriever."""
