"""One launch: plan, claim, run, close; engines, summary, retry."""
