"""The run as the orchestrator sees it: its state machine, the child processes, and the driver that joins them."""
