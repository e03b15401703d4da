"""The doctor's checks: the machine, the other processes, and a run's options."""
