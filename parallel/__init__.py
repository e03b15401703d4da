"""Communication between the N processes of a program: their ranks, and sums over their arrays."""

from parallel.communicator import Communicator, SerialCommunicator
from parallel.reducer import GradientReducer, LocalReducer

__all__ = ["Communicator", "GradientReducer", "LocalReducer", "SerialCommunicator"]
