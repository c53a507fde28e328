"""SWIM in virtual time: a simulated network, schedules of faults, and the properties that hold over all of them."""
