"""Figures of the running engine, and totals of the spool, for eyes and for decisions."""
