"""One launch: job, plan, engines, resume, summary, retry."""
