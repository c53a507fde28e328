"""What the operator sees of a run while it goes on: a state folded from its events, frames of it, who draws them."""
