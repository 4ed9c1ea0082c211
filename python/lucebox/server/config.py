"""What an operator may set; `lucebox serve --help` names the options."""

from __future__ import annotations

from dataclasses import dataclass, field

from lucebox.errors import RequestError

EFFORT_BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192, "high": -1, "xhigh": -1, "max": -1}
"""reasoning_effort -> tokens of reasoning, -1 = no limit."""


@dataclass(frozen=True)
class ServerConfig:
    """Raises RequestError for a value that is none."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 = one that is free."""
    alias: str | None = None
    """The model's name in answers; the file's name when not given."""
    strict_model: bool = False
    """A request that names another model gets a 404."""
    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ("localhost",)
    """Origins that browsers may call from: URLs, "localhost" (any port), or "*"."""
    queue: int = 64
    """Requests that may wait."""
    timeout: float = 0.0
    """Seconds that a request may take, waiting included; 0 = no limit."""
    drain: float = 30.0
    """Seconds that running requests get to finish after SIGTERM."""
    ping_interval: float = 15.0
    """Seconds without bytes after which a stream gets a comment; -1 = never."""
    max_body: int = 32 << 20
    """Bytes."""
    body_timeout: float = 30.0
    """Seconds without a byte after which a body that is not complete is given up."""
    default_max_tokens: int = -1
    """Of a reply, when the request names no number; -1 = to the context's end."""
    thinking: bool | None = None
    """Of requests that do not say; None = what the template does."""
    speculative: str = "match"
    """How drafts are judged: "match", "reject" or "off"."""
    lookup: bool = True
    """Draft from the text so far where it repeats itself."""
    metrics: bool = True
    metrics_compat: bool = False
    """Also under the names of llama.cpp."""
    log_json: bool = False
    efforts: dict[str, int] = field(default_factory=lambda: dict(EFFORT_BUDGETS))

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise RequestError(f"port: {self.port}; 0 to 65535 was expected")
        if self.queue < 0:
            raise RequestError(f"queue: {self.queue}; 0 or more was expected")
        if not self.body_timeout > 0:
            raise RequestError(f"body_timeout: {self.body_timeout}; more than 0 was expected")
        if self.speculative not in ("match", "reject", "off"):
            raise RequestError(f"speculative: {self.speculative!r}; known are match, reject, off")
        for key in self.api_keys:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise RequestError("api_key: a key is empty or has characters that a header cannot carry")

    @property
    def loopback(self) -> bool:
        return self.host in ("127.0.0.1", "localhost", "::1")
