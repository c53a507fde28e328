"""One stage of the chain: its state machine, its actor and the node process that hosts them."""
