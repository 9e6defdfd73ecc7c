"""Tables that only the MoB paper has."""
