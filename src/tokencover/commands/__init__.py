"""The commands of ``tokencover``, one file each; `tokencover.cli` lists them."""
