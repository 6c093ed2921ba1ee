"""Measurements that a user can repeat on his own machine: contestants in turns, medians and spread, one JSON report."""
