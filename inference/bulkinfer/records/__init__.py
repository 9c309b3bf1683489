"""Which pictures there are: manifests, partitions, links."""
