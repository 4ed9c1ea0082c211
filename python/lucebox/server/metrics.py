"""Counters and histograms for Prometheus, one registry a server. Scraping takes no lock of the engine."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from lucebox.server.jobs import Choice

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
POSITIONS = 32
"""Drafted positions that are counted one by one."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)


class Metrics:
    """Written by the engine's thread, but for `request` of refused requests."""

    def __init__(self, model: str, *, compat: bool = False) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        counter, histogram = self._counter, self._histogram
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts that ran.")
        self.prompt_seconds = counter("prompt_seconds", "Time from a slot to the first token.")
        self.generation_tokens = counter("generation_tokens", "Tokens of replies.")
        self.generation_seconds = counter("generation_seconds", "Time from the first token to the last.")
        self.steps = counter("engine_steps", "Forwards over the running sequences.")
        self.busy = self._gauge("busy_slots", "Slots in the last step.")
        self.running = self._gauge("requests_running", "Sequences with a slot.")
        self.waiting = self._gauge("requests_waiting", "Sequences in the queue.")
        self.context_max = self._gauge("context_tokens_max", "Longest context so far.")
        self.pages_free = self._gauge("kv_pages_free", "KV pages that no slot holds.")
        self.kv_usage = self._gauge("kv_usage_ratio", "Share of the KV pages in use.")
        self.memory = self._gauge("engine_memory_bytes", "Buffers of the engine, mapped weights included.")
        self.faults = counter("engine_faults", "Steps that failed; the engine was loaded anew.")
        self.drafted = counter("spec_draft_tokens", "Tokens drafted.")
        self.accepted = counter("spec_accepted_tokens", "Drafted tokens accepted.")
        self.spec_steps = counter("spec_steps", "Decodes with a draft.")
        self.ttft = histogram("ttft_seconds", "From a request to its first token.", _SECONDS)
        self.inter_token = histogram("inter_token_seconds", "Between two tokens.", _SHORT)
        self.e2e = histogram("e2e_seconds", "From a request to its end.", _SECONDS)
        self.queued = histogram("queue_seconds", "From a request to its slot.", _SECONDS)
        self.prefill = histogram("prefill_seconds", "From a slot to the first token.", _SECONDS)
        self.decode = histogram("decode_seconds", "From the first token to the last.", _SECONDS)
        per_position = Counter(
            "lucebox_spec_accepted_per_pos",
            "Drafted tokens accepted, by their place in the draft.",
            ["model", "position"],
            registry=self.registry,
        )
        self._accepted_at = [per_position.labels(model, str(position)) for position in range(POSITIONS)]
        self._requests = Counter(
            "lucebox_requests", "Sequences that ended.", ["model", "finish_reason", "code"], registry=self.registry
        )
        self.registry.register(_Process())
        if compat:
            self.registry.register(_LlamaCpp(self))

    def watch(self, *, running: Callable[[], float], waiting: Callable[[], float]) -> None:
        """Gauges that are read when they are asked for."""
        self.running.set_function(running)
        self.waiting.set_function(waiting)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def request(self, finish_reason: str, code: int) -> None:
        self._requests.labels(self._model, finish_reason, str(code)).inc()

    def started(self, choice: Choice) -> None:
        self.queued.observe(choice.started_at - choice.queued_at)

    def step(self, busy: int) -> None:
        self.steps.inc()
        self.busy.set(busy)

    def pages(self, free: int, total: int) -> None:
        self.pages_free.set(free)
        self.kv_usage.set(1 - free / total if total else 0.0)

    def first_token(self, choice: Choice) -> None:
        self.ttft.observe(choice.first_at - choice.queued_at)
        self.prefill.observe(choice.first_at - choice.started_at)
        self.prompt_tokens.inc(len(choice.prompt))
        self.prompt_seconds.inc(choice.first_at - choice.started_at)

    def tokens(self, drafted: int, accepted: int, taken: int, seconds: float) -> None:
        """Of one decode: tokens that it drafted, that were accepted, and that the reply took."""
        if drafted:
            self.spec_steps.inc()
            self.drafted.inc(drafted)
            self.accepted.inc(accepted)
            for position in range(min(accepted, POSITIONS)):
                self._accepted_at[position].inc()
        for _ in range(taken):
            self.inter_token.observe(seconds / taken)

    def finished(self, choice: Choice) -> None:
        output = choice.output
        self.request(output.finish_reason or "", 200)
        self.generation_tokens.inc(output.generated)
        now = time.monotonic()
        self.e2e.observe(now - choice.queued_at)
        if choice.first_at:
            self.generation_seconds.inc(choice.last_at - choice.first_at)
            self.decode.observe(choice.last_at - choice.first_at)
        self.context_max.set(max(self._value(self.context_max), len(choice.prompt) + output.generated))

    def value(self, name: str) -> float:
        """Of a metric without further labels."""
        found = self.registry.get_sample_value(name, {"model": self._model})
        return 0.0 if found is None else found

    @staticmethod
    def _value(gauge: Gauge) -> float:
        return float(gauge._value.get())

    def _counter(self, name: str, help: str) -> Counter:
        return Counter(f"lucebox_{name}", help, ["model"], registry=self.registry).labels(self._model)

    def _gauge(self, name: str, help: str) -> Gauge:
        return Gauge(f"lucebox_{name}", help, ["model"], registry=self.registry).labels(self._model)

    def _histogram(self, name: str, help: str, buckets: Sequence[float]) -> Histogram:
        found = Histogram(f"lucebox_{name}", help, ["model"], buckets=buckets, registry=self.registry)
        return found.labels(self._model)


class _Process(Collector):
    """Memory of this process, read when it is asked for."""

    def collect(self) -> Iterable[Metric]:
        peak = GaugeMetricFamily("lucebox_process_peak_memory_bytes", "Largest resident size so far.")
        peak.add_metric([], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        yield peak


class _LlamaCpp(Collector):
    """The same values under llama.cpp's names."""

    COUNTERS = {
        "llamacpp:prompt_tokens": "prompt_tokens",
        "llamacpp:prompt_seconds": "prompt_seconds",
        "llamacpp:tokens_predicted": "generation_tokens",
        "llamacpp:tokens_predicted_seconds": "generation_seconds",
        "llamacpp:n_decode": "engine_steps",
        "llamacpp:spec_decode_num_draft_tokens": "spec_draft_tokens",
        "llamacpp:spec_decode_num_accepted_tokens": "spec_accepted_tokens",
        "llamacpp:spec_decode_num_drafts": "spec_steps",
    }
    GAUGES = {
        "llamacpp:requests_processing": "requests_running",
        "llamacpp:requests_deferred": "requests_waiting",
        "llamacpp:n_busy_slots_per_decode": "busy_slots",
        "llamacpp:n_tokens_max": "context_tokens_max",
    }

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._collecting = False

    def collect(self) -> Iterable[Metric]:
        if self._collecting:  # asked by `value`, which wants the others
            return
        self._collecting = True
        try:
            yield from self._all()
        finally:
            self._collecting = False

    def _all(self) -> Iterable[Metric]:
        value = self._metrics.value
        for name, own in self.COUNTERS.items():
            counter = CounterMetricFamily(name, f"As lucebox_{own}_total.")
            counter.add_metric([], value(f"lucebox_{own}_total"))
            yield counter
        for name, own in self.GAUGES.items():
            gauge = GaugeMetricFamily(name, f"As lucebox_{own}.")
            gauge.add_metric([], value(f"lucebox_{own}"))
            yield gauge
        for name, tokens, seconds in (
            ("llamacpp:prompt_tokens_seconds", "prompt_tokens", "prompt_seconds"),
            ("llamacpp:predicted_tokens_seconds", "generation_tokens", "generation_seconds"),
        ):
            time_s = value(f"lucebox_{seconds}_total")
            gauge = GaugeMetricFamily(name, "Tokens a second since the start.")
            gauge.add_metric([], value(f"lucebox_{tokens}_total") / time_s if time_s else 0.0)
            yield gauge
