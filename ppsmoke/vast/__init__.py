"""Renting machines on vast.ai: offers, instances, what a rented machine is told, and what is known of bad ones."""
