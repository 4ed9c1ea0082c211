"""The ASGI application: routes by path, behind the gate."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from lucebox.server import openapi
from lucebox.server.config import ServerConfig
from lucebox.server.routes import Routes
from lucebox.server.wire import App, Gate, JSONAnswer


def make_app(routes: Routes, config: ServerConfig) -> App:
    endpoints = {
        ("POST", "/v1/chat/completions"): routes.chat,
        ("POST", "/v1/completions"): routes.completions,
        ("GET", "/v1/models"): routes.models,
        ("GET", "/v1/models/{id:path}"): routes.one_model,
        ("GET", "/v1/health"): routes.health,
        ("GET", "/props"): routes.props,
        ("GET", "/slots"): routes.slots,
        ("POST", "/tokenize"): routes.tokenize,
        ("POST", "/detokenize"): routes.detokenize,
        ("POST", "/apply-template"): routes.apply_template,
    }
    if config.metrics:
        endpoints["GET", "/metrics"] = routes.prometheus
    document = openapi.document(routes.build)

    async def describe(request: Request) -> Response:
        return JSONAnswer(document)

    endpoints["GET", "/openapi.json"] = describe
    table = []
    for (method, path), endpoint in endpoints.items():
        for one in {path, path.removeprefix("/v1")}:
            table.append(Route(one, endpoint, methods=[method]))
            if "{" not in one:
                table.append(Route(one + "/", endpoint, methods=[method]))
    return Gate(Router(table, redirect_slashes=False), config)
