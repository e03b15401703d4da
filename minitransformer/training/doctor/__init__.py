"""The checks of ``minitransformer-doctor``: the machine, the other processes, and a run's options."""
