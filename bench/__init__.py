"""Side-by-side measurements: `python -m bench`, or `make bench`. They say how fast it is; they never fail for it."""
