"""A folder of results as a page: what is compared, drawn and written."""
