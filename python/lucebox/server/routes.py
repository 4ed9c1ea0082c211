"""The routes: a body in, a plan, a place in the queue, an answer out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from lucebox.server import api_errors, schemas
from lucebox.server.answers import Answer, ChatAnswer, TextAnswer
from lucebox.server.api_errors import ApiError
from lucebox.server.config import ServerConfig
from lucebox.server.deltas import Output
from lucebox.server.jobs import Choice, Job, Sink
from lucebox.server.metrics import CONTENT_TYPE, Metrics
from lucebox.server.prepare import Model, Plan, Preparer
from lucebox.server.replies import Reply
from lucebox.server.scheduler import Scheduler
from lucebox.server.schemas import ChatRequest, Common, CompletionRequest, DetokenizeRequest, TokenizeRequest
from lucebox.server.wire import JSONAnswer, parse_json, read_body

T = TypeVar("T")
B = TypeVar("B", bound=schemas.Body)


@dataclass(frozen=True)
class Routes:
    """Its methods are the endpoints."""

    model: Model
    config: ServerConfig
    scheduler: Scheduler
    metrics: Metrics
    preparer: Preparer
    workers: ThreadPoolExecutor
    build: str

    async def chat(self, request: Request) -> Any:
        parsed = await self._parse(request, ChatRequest)
        self._check(parsed)
        plan = await self._work(lambda: self.preparer.chat(parsed))
        job = self._job(request, parsed, [plan])
        answer = ChatAnswer(
            self.model.name,
            self.build,
            self.model.tokenizer,
            job.choices,
            include_usage=parsed.stream and parsed.stream_options is not None and parsed.stream_options.include_usage,
            logprobs=parsed.logprobs,
            token_ids=parsed.return_tokens or parsed.return_token_ids,
            prompt_tokens=len(plan.prompt),
        )
        return self._reply(parsed, job, answer)

    async def completions(self, request: Request) -> Any:
        parsed = await self._parse(request, CompletionRequest)
        self._check(parsed)
        plans = await self._work(lambda: self.preparer.completions(parsed))
        job = self._job(request, parsed, plans)
        decode = self.model.tokenizer.decode
        answer = TextAnswer(
            self.model.name,
            self.build,
            self.model.tokenizer,
            job.choices,
            include_usage=parsed.stream and parsed.stream_options is not None and parsed.stream_options.include_usage,
            logprobs=parsed.logprobs is not None,
            token_ids=parsed.return_tokens or parsed.return_token_ids,
            prompt_tokens=sum(len(plan.prompt) for plan in plans),
            echo=[decode(choice.prompt, special=True) if parsed.echo else "" for choice in job.choices],
        )
        return self._reply(parsed, job, answer)

    def _reply(self, request: Common, job: Job, answer: Answer) -> Reply:
        ping = self.config.ping_interval if request.sse_ping_interval is None else request.sse_ping_interval
        job.id = answer.id
        self.scheduler.submit(job)
        return Reply(self.scheduler, job, answer, stream=request.stream, ping=ping if ping > 0 else None)

    def _check(self, request: Common) -> None:
        """What the schema cannot know."""
        if self.config.strict_model and request.model not in (None, self.model.name):
            raise ApiError(404, "this server does not have that model", code="model_not_found", param="model")
        if request.n > self.model.slots:
            raise api_errors.bad_request(f"n: this server has {self.model.slots} slots", "n")
        if request.id_slot >= self.model.slots:
            raise api_errors.bad_request(f"id_slot: this server has {self.model.slots} slots", "id_slot")

    def _job(self, request: Request, parsed: Common, plans: Sequence[Plan]) -> Job:
        deadline = time.monotonic() + self.config.timeout if self.config.timeout else None
        job = Job("", request.state.client, Sink(asyncio.get_running_loop()), deadline)
        if len(plans) * parsed.n > 128:
            raise api_errors.bad_request("prompt: more than 128 choices in one request", "prompt")
        for plan in plans:
            for i in range(parsed.n):
                job.choices.append(self._choice(job, parsed, plan, i))
        return job

    def _choice(self, job: Job, parsed: Common, plan: Plan, i: int) -> Choice:
        return Choice(
            job,
            len(job.choices),
            plan.prompt,
            {**plan.params, "choice": i},
            Output(self.model.tokenizer, plan.output),
            prefill_only=plan.prefill_only,
            wanted_slot=parsed.id_slot if parsed.id_slot >= 0 else None,
            reasoning_budget=plan.reasoning_budget,
            close_ids=plan.close_ids,
            constraint=None if plan.constraint is None else plan.constraint.start(),
            predict_ms=parsed.t_max_predict_ms,
            timings_per_token=parsed.timings_per_token,
            report_progress=parsed.return_progress,
            draft_limit=parsed.speculative_n_max,
        )

    async def _parse(self, request: Request, kind: type[B]) -> B:
        body = await read_body(request, self.config)
        return await self._work(lambda: schemas.parse(kind, parse_json(body)))

    async def _work(self, task: Callable[[], T]) -> T:
        """Off the event loop: templates, tokenising and grammars of long requests take their time."""
        return await asyncio.get_running_loop().run_in_executor(self.workers, task)

    # What runs no model.

    async def health(self, request: Request) -> Response:
        scheduler = self.scheduler
        if scheduler.ready:
            return JSONAnswer({"status": "ok"})
        why = (
            "the engine has failed"
            if scheduler.dead
            else "shutting down"
            if scheduler.draining
            else "loading the model"
        )
        raise api_errors.unavailable(why)

    async def models(self, request: Request) -> Response:
        return JSONAnswer({"object": "list", "data": [self._model()]})

    async def one_model(self, request: Request) -> Response:
        if request.path_params["id"] != self.model.name:
            raise ApiError(404, "this server does not have that model", code="model_not_found", param="model")
        return JSONAnswer(self._model())

    def _model(self) -> dict[str, Any]:
        model = self.model
        meta = {
            "n_ctx": model.n_ctx,
            "n_ctx_train": model.n_ctx_train,
            "n_vocab": model.vocab,
            "n_params": model.parameters,
            "size": model.file_bytes,
        }
        return {
            "id": model.name,
            "object": "model",
            "created": model.created,
            "owned_by": "lucebox",
            "max_model_len": model.n_ctx,
            "context_length": model.n_ctx,
            "meta": meta,
        }

    async def props(self, request: Request) -> Response:
        model, chat = self.model, self.model.chat
        defaults = self.preparer.defaults()
        return JSONAnswer(
            {
                "default_generation_settings": {"n_ctx": model.n_ctx, "params": defaults},
                "total_slots": model.slots,
                "model_alias": model.name,
                "model_path": model.file,
                "chat_template": chat.source,
                "chat_template_caps": {
                    "supports_tools": chat.mentions("tools"),
                    "supports_thinking": chat.mentions("enable_thinking"),
                    "supports_reasoning_effort": chat.mentions("reasoning_effort"),
                    "supports_preserve_thinking": chat.mentions("preserve_thinking"),
                },
                "modalities": {"vision": False, "audio": False},
                "build_info": self.build,
                "is_sleeping": False,
                "speculative": dict(model.speculative),
                "reasoning": {"tiers": self.config.efforts, "default": self.config.thinking},
                "cache": {"budget_bytes": 0, "used_bytes": 0, "snapshots": 0},
                "backend": dict(model.backend),
            }
        )

    async def slots(self, request: Request) -> Response:
        running = self.scheduler.running()
        if request.query_params.get("fail_on_no_slot") == "1" and len(running) >= self.model.slots:
            raise api_errors.unavailable("no slot is idle", "no_slot")
        return JSONAnswer([self._slot(i, running.get(i)) for i in range(self.model.slots)])

    def _slot(self, index: int, choice: Choice | None) -> dict[str, Any]:
        busy = choice is not None
        shown = {"temperature", "top_k", "top_p", "min_p", "seed", "min_tokens", "logprobs", "speculative"}
        return {
            "id": index,
            "id_task": choice.job.id if choice else None,
            "n_ctx": self.model.n_ctx,
            "is_processing": busy,
            "speculative": self.model.speculative["type"] != "none",
            "n_prompt_tokens": len(choice.prompt) if choice else 0,
            "n_prompt_tokens_processed": choice.fed if choice else 0,
            "n_decoded": choice.output.generated if choice else 0,
            "n_remain": choice.output.left if choice else 0,
            "params": {key: value for key, value in choice.params.items() if key in shown} if choice else {},
        }

    async def prometheus(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type=None, headers={"content-type": CONTENT_TYPE})

    async def tokenize(self, request: Request) -> Response:
        parsed = await self._parse(request, TokenizeRequest)
        return JSONAnswer(await self._work(lambda: self._tokenize(parsed)))

    def _tokenize(self, request: TokenizeRequest) -> dict[str, Any]:
        tokenizer = self.model.tokenizer
        given = [name for name in ("content", "prompt", "messages") if getattr(request, name) is not None]
        if len(given) != 1:
            raise api_errors.bad_request("one of content, prompt and messages was expected", "content")
        if request.messages is not None:
            chat = schemas.parse(ChatRequest, {"messages": request.messages, "tools": request.tools})
            ids = self.preparer.render(chat).ids
        else:
            text = request.content if request.content is not None else request.prompt or ""
            if request.add_special or request.prompt is not None:
                ids = self.preparer.ids(text, special=request.parse_special)
            else:
                ids = tokenizer.encode(text, special=request.parse_special)
        tokens: list[Any] = list(ids)
        if request.with_pieces:
            tokens = [{"id": id, "piece": _piece(tokenizer.token_bytes(id, special=True))} for id in ids]
        if request.content is not None:
            return {"tokens": tokens}
        return {"tokens": tokens, "count": len(ids), "max_model_len": self.model.n_ctx}

    async def detokenize(self, request: Request) -> Response:
        parsed = await self._parse(request, DetokenizeRequest)
        ids = self.preparer.ids(parsed.tokens, param="tokens")
        return JSONAnswer({"content": await self._work(lambda: self.model.tokenizer.decode(ids, special=True))})

    async def apply_template(self, request: Request) -> Response:
        parsed = await self._parse(request, ChatRequest)
        prompt = await self._work(lambda: self.preparer.render(parsed))
        return JSONAnswer({"prompt": prompt.text})


def _piece(raw: bytes) -> str | list[int]:
    """As llama.cpp: text, or bytes where it is none."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return list(raw)
