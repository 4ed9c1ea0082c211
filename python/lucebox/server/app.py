"""The ASGI application: routes by path, errors as JSON."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lucebox.server import openapi
from lucebox.server.api_errors import ApiError
from lucebox.server.config import ServerConfig
from lucebox.server.routes import Routes
from lucebox.server.wire import App, Gate, JSONAnswer, as_api_error, error_answer


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
    app = Starlette(routes=table, exception_handlers={HTTPException: _http_error, ApiError: _api_error})
    app.router.redirect_slashes = False
    return Gate(app, config)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {404: "there is no such path", 405: "this path does not take that method"}
    status = error.status_code if error.status_code in known else 400
    answer = error_answer(ApiError(status, known.get(status, "the request is not valid")))
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


async def _api_error(request: Request, error: Exception) -> Response:
    return error_answer(as_api_error(error))
