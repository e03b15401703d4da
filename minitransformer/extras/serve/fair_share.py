"""The time that the work of each client has taken, by which a queue shares a thread fairly among clients.

Source: Demers, Keshav and Shenker 1989, "Analysis and simulation of a fair queueing algorithm".  Here the cost of work
is not estimated in advance: it is the time that the work takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

SAVED_SECONDS = 0.25  # the most by which a client that returns is ahead of the others
REMEMBERED_SECONDS = 1.0  # the most by which a client that returns is behind the others


class FairShare:
    """The seconds that the work of each client has taken; the client with the fewest is the next."""

    def __init__(self) -> None:
        self._taken: dict[str, float] = {}
        self._until: dict[str, float] = {}  # client → time at which its work was last computed

    def taken(self, client: str) -> float:
        """Return the seconds that a client's work has taken."""
        return self._taken.get(client, 0.0)

    def until(self, client: str) -> float:
        """Return the time at which a client's work was last computed; 0 if it never was."""
        return self._until.get(client, 0.0)

    def least(self, clients: Iterable[str]) -> str:
        """Return the client whose work has taken the least time; of several such clients, the first."""
        return min(clients, key=self.taken)

    def admit(self, client: str, others: Collection[str]) -> None:
        """Let a client that had no work compete with ``others``, which have work.

        It is ahead of the others by at most SAVED_SECONDS, and behind them by at most REMEMBERED_SECONDS.
        """
        least = min(map(self.taken, others), default=self.taken(client))
        self._taken[client] = min(max(self.taken(client), least - SAVED_SECONDS), least + REMEMBERED_SECONDS)

    def charge(self, clients: Collection[str], start: float, end: float) -> None:
        """Divide the time from ``start`` to ``end`` equally among the clients whose work was computed."""
        for client in clients:
            self._taken[client] = self.taken(client) + (end - start) / len(clients)
            self._until[client] = end

    def forget(self, busy: Collection[str]) -> None:
        """Forget each client that is not ``busy``, unless it has saved less than SAVED_SECONDS."""
        least = min(map(self.taken, busy), default=float("inf")) - SAVED_SECONDS
        self._taken = {each: taken for each, taken in self._taken.items() if each in busy or taken > least}
        self._until = {each: end for each, end in self._until.items() if each in self._taken}
