"""Who is next: clients take turns, each with its own requests in order."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from lucebox.server.jobs import Choice


class FairQueue:
    """One client with many requests does not keep another waiting behind all of them."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[Choice]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))

    def __iter__(self) -> Iterator[Choice]:
        for choices in self._clients.values():
            yield from choices

    def push(self, choice: Choice) -> None:
        self._clients.setdefault(choice.job.client, deque()).append(choice)

    def pop(self, usable: Callable[[Choice], bool]) -> Choice | None:
        """The first usable choice of the client whose turn it is; the client goes to the end."""
        for client, choices in self._clients.items():
            choice = next(filter(usable, choices), None)
            if choice is not None:
                self.remove(choice)
                if client in self._clients:
                    self._clients.move_to_end(client)
                return choice
        return None

    def remove(self, choice: Choice) -> None:
        choices = self._clients[choice.job.client]
        choices.remove(choice)
        if not choices:
            del self._clients[choice.job.client]
