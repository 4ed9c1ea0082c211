"""The OpenAPI document, from the models that parse the requests."""

from __future__ import annotations

from typing import Any

from lucebox.server import schemas

_ERRORS = {
    "400": "The request is not valid.",
    "401": "No valid API key.",
    "408": "The body stalled.",
    "413": "The body is too long.",
    "415": "The body is not JSON.",
    "429": "The queue is full.",
    "503": "Loading, shutting down, or the engine has failed.",
}
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}
_OBJECT = {"type": "object"}
_POSTS: dict[str, tuple[type[schemas.Body], str]] = {
    "/v1/chat/completions": (schemas.ChatRequest, "The next turn of a conversation."),
    "/v1/completions": (schemas.CompletionRequest, "The continuation of a text."),
    "/tokenize": (schemas.TokenizeRequest, "Token ids of a text or of messages."),
    "/detokenize": (schemas.DetokenizeRequest, "The text of token ids."),
    "/apply-template": (schemas.ChatRequest, "The prompt that the chat route would run."),
}
_GETS: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/models": ("The model.", _OBJECT),
    "/v1/health": ("Whether requests are taken.", _OBJECT),
    "/health": ("The same.", _OBJECT),
    "/props": ("Settings and capabilities.", _OBJECT),
    "/slots": ("What each slot does.", {"type": "array", "items": _OBJECT}),
}
_STREAMS = ("/v1/chat/completions", "/v1/completions")


def document(version: str) -> dict[str, Any]:
    components: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, Any] = {}
    for path, (kind, summary) in _POSTS.items():
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        components.update(schema.pop("$defs", {}))
        components[kind.__name__] = schema
        body = {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
        answer: dict[str, Any] = {"application/json": {"schema": _OBJECT}}
        if path in _STREAMS:
            answer["text/event-stream"] = {"schema": {"type": "string"}}
        paths[path] = {
            "post": {
                "summary": summary,
                "requestBody": {"required": True, "content": {"application/json": body}},
                "responses": {"200": {"description": "Done.", "content": answer}, **_errors()},
            }
        }
    for path, (summary, schema) in _GETS.items():
        answer = {"application/json": {"schema": schema}}
        paths[path] = {
            "get": {
                "summary": summary,
                "responses": {"200": {"description": "Done.", "content": answer}, **_errors("401", "503")},
            }
        }
    paths["/metrics"] = {
        "get": {
            "summary": "Counters for Prometheus.",
            "responses": {
                "200": {"description": "Done.", "content": {"text/plain": {"schema": {"type": "string"}}}},
                **_errors("401"),
            },
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "lucebox", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def _errors(*statuses: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {status: {"description": _ERRORS[status], "content": content} for status in statuses or _ERRORS}
