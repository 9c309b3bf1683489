"""partition_dataset: partitions are planned, written, linked and packed."""
