"""Files of the orchestrator's machine that nodes read over iroh: a model on no server, the code of the caller."""
