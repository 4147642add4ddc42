"""Compilers for models written with xformer. Each is imported by name and may import xformer, never the reverse."""
