"""The server's life: a socket, the engine's thread, signals, and the end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

import lucebox
from lucebox._core import SequenceParams, StepWork
from lucebox.engine import Engine, Lease
from lucebox.errors import RequestError
from lucebox.server import logs
from lucebox.server.app import make_app
from lucebox.server.config import ServerConfig
from lucebox.server.metrics import Metrics
from lucebox.server.prepare import Model, Preparer
from lucebox.server.protocol import HalfOpenProtocol
from lucebox.server.routes import Routes
from lucebox.server.scheduler import Core, Scheduler

log = logging.getLogger("lucebox.server")

TELL_SECONDS = 5.0
"""What answers get to leave at the very end."""
POLL_SECONDS = 0.05


def serve(engine: Engine, config: ServerConfig) -> int:
    """Serves until SIGTERM or Ctrl-C; returns the exit code. The engine takes no other calls meanwhile."""
    logs.configure(as_json=config.log_json)
    with engine.lend() as lease:
        cores = iter([lease.core])
        model = describe(engine, lease, config)
        server = Server(model, lambda: next(cores, None) or lease.reopen(), config)
        server.metrics.memory.set(sum(entry.nbytes for entry in lease.core.allocated()))
        return server.run()


class Server(uvicorn.Server):
    """open_core: gives the engine, loaded anew each time but the first; called in the engine's thread."""

    def __init__(self, model: Model, open_core: Callable[[], Core], config: ServerConfig) -> None:
        self._config = config
        self._open_core = open_core
        self._failed = False
        self._draining: asyncio.Task[None] | None = None
        self.listening = threading.Event()
        self.port = config.port
        """Where it listens, once it does."""
        self.metrics = Metrics(model.name, compat=config.metrics_compat)
        self.scheduler = Scheduler(
            self._open_warm,
            vocab=model.vocab,
            queue_limit=config.queue,
            metrics=self.metrics,
            on_dead=self._on_dead,
        )
        self.metrics.watch(running=lambda: len(self.scheduler.running()), waiting=lambda: self.scheduler.waiting)
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="prepare")
        routes = Routes(
            model,
            config,
            self.scheduler,
            self.metrics,
            Preparer(model, config),
            self._workers,
            f"lucebox-{lucebox.__version__}",
        )
        super().__init__(
            uvicorn.Config(
                make_app(routes, config),
                http=HalfOpenProtocol,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=int(TELL_SECONDS),
            )
        )

    def run(self, sockets: list[socket.socket] | None = None) -> int:  # type: ignore[override]
        with self._listen() as own:
            self._announce(own)
            asyncio.run(self.serve([own]))
        self.scheduler.stop()
        self.scheduler.join(TELL_SECONDS)
        self._workers.shutdown(wait=False, cancel_futures=True)
        return int(self._failed)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.scheduler.start()
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C let running requests finish; a second one does not wait for them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.drain)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def drain(self) -> None:
        if self._draining is None:
            log.info("shutting down: running requests get %g s", self._config.drain)
            self.scheduler.draining = True
            self._draining = asyncio.ensure_future(self._drain())
        else:
            self._draining.cancel()
            self._leave()

    async def _drain(self) -> None:
        end = time.monotonic() + self._config.drain
        while not self.scheduler.idle and time.monotonic() < end:
            await asyncio.sleep(POLL_SECONDS)
        self._leave()

    def _leave(self) -> None:
        """What still runs is told; then the connections are closed."""
        self.scheduler.stop()
        self.should_exit = True

    def _on_dead(self) -> None:
        self._failed = True
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._leave)

    def _open_warm(self) -> Core:
        core = self._open_core()
        warm_up(core)
        return core

    @contextmanager
    def _listen(self) -> Iterator[socket.socket]:
        host, port = self._config.host, self._config.port
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            with socket.create_server((host, port), family=family, backlog=2048) as own:
                yield own
        except OSError as error:
            raise RequestError(f"cannot listen on {host} port {port}: {error.strerror}") from None

    def _announce(self, own: socket.socket) -> None:
        host, port = own.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        if not self._config.loopback and not self._config.api_keys:
            log.warning("listening beyond this machine without an API key: anyone who reaches it can use it")
        log.info("listening on http://%s:%d", shown, port)
        self.port = port


def warm_up(core: Core) -> None:
    """One step, so that what is set up lazily is set up, and a broken engine shows."""
    core.begin(0, SequenceParams(), [0])
    core.step([StepWork(0, [0], emit=True)])
    core.reset(0)


def describe(engine: Engine, lease: Lease, config: ServerConfig) -> Model:
    file = Path(engine.path)
    return Model(
        name=config.alias or engine.name,
        file=file.name,
        tokenizer=engine.tokenizer,
        chat=engine.chat,
        metadata=engine.metadata,
        vocab=engine.info.vocab,
        n_ctx=engine.max_ctx,
        n_ctx_train=engine.info.context_length,
        slots=lease.core.slots,
        parameters=engine.parameters,
        file_bytes=engine.nbytes,
        created=int(time.time()),
        backend=_backend(engine),
        speculative=_speculative(engine, config),
    )


def _speculative(engine: Engine, config: ServerConfig) -> dict[str, Any]:
    block = engine.draft_block_size
    kinds = ["drafter"] * bool(block) + ["lookup"] * config.lookup
    kind = "none" if config.speculative == "off" else "+".join(kinds) or "none"
    return {"type": kind, "judge": config.speculative, "block": block}


def _backend(engine: Engine) -> dict[str, Any]:
    return {
        "device": engine.device,
        "variant": engine.variant,
        "launch": engine.launch,
        "threads": engine.threads,
        "kv": engine.kv,
    }
