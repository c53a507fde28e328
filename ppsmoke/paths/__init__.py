"""How members reach each other: measured before a run begins, watched while it goes on."""
