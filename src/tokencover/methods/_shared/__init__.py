"""What several methods share; nothing here is a method."""
