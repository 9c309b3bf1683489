"""Which job a launch is, and which records it has to do: identity, earlier jobs, skipped records, shards."""
