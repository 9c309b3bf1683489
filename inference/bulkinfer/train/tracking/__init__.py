"""What is recorded of a run beside its tables: a profile, the time to a target, a tracker."""
