"""Models: what reads queries and scores docid symbols. Knows nothing about tries."""
