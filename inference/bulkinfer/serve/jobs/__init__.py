"""Jobs over HTTP: a durable queue of launches, run one after another for several users."""
