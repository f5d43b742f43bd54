"""Saved retrievers on their way to others: as a repository of the Hugging Face hub, and as one zip."""
