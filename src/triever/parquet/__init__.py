"""Checks of untrusted Parquet files, before Arrow decodes them."""
