"""Starts, watches, restarts and ends the processes of one appliance, and decides when to train and swap."""
