"""Code that several methods share; no methods."""
