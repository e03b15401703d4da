"""Who I am among N processes, and how their arrays are summed."""
