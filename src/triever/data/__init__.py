"""Records, the files they come from and go to, datasets, and the default corpus."""
