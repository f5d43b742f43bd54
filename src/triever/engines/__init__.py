"""What searches: one typed, immutable value for each kind. An engine knows nothing of how it was learned."""
