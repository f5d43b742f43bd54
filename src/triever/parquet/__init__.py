"""Checks of Parquet files that nobody has vouched for, before Arrow decodes them."""
