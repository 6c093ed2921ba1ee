"""What a person sees of a running appliance: pure functions from a status to something rich can show."""
