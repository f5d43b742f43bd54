"""Checks of untrusted Parquet files before Arrow decodes them, and tables that are decoded in bounded memory."""
