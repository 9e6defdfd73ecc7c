"""Models that several processes, devices or formats of weights share."""
