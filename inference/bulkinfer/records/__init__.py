"""The records of a data set: manifests, partitions, links, and the sources that name pictures."""
