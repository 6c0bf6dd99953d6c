"""The ASGI application: finds the route of a request, decodes what was said, sends the answer."""

import asyncio
from collections.abc import Mapping, Sequence

from kedge.server.answers import Answer, Receive, Send, Stream, send_answer
from kedge.server.backend import Backend
from kedge.server.errors import (
    RouteNotFound,
    WrongMethod,
    WrongType,
    error_answer,
)
from kedge.server.gate import Scope
from kedge.server.requests import (
    NoBody,
    Request,
    body_value,
    parsed_query,
    query_value,
    read_body,
)
from kedge.server.routing import Route, Router


class Application:
    """Answers requests of any number of clients with one backend."""

    def __init__(self, routes: Sequence[Route], backend: Backend) -> None:
        self._router = Router(routes)
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Mapping[bytes, bytes] = scope["kedge.headers"]
        accepted = headers.get(b"accept-encoding", b"")
        try:
            answer = await self._answer(scope, headers, receive)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
            answer = error_answer(error)
        if isinstance(answer, Answer):
            await send_answer(answer, accepted, send)
        elif scope["method"] == "HEAD":
            await send_answer(Answer(b"", type=b"text/event-stream"), b"", send)
        else:
            await answer(receive, send)

    async def _answer(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Answer | Stream:
        route, parameters = self._route(scope["method"], scope["path"])
        asked = parsed_query(scope["query_string"])
        query = query_value(asked, route.query)
        body = await self._body(route, headers, receive)
        request = Request(
            backend=self._backend,
            path=parameters,
            query=query,
            body=body,
            headers=headers,
            asked=asked,
            url=_url(scope),
        )
        return await route.handler(request)

    def _route(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        routes, parameters = self._router.find(path)
        route = routes.get("GET" if method == "HEAD" else method)
        if route is not None:
            return route, parameters
        if routes:
            raise WrongMethod(sorted(routes))
        raise RouteNotFound(method, path[:200])

    async def _body(self, route: Route, headers: Mapping[bytes, bytes], receive: Receive) -> object:
        if route.body is NoBody:
            return NoBody()
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind and kind != b"application/json" and not route.body_may_be_absent:
            raise WrongType(kind.decode("latin-1")[:100])
        raw = await read_body(headers, receive, self._backend.settings.max_body)
        return body_value(raw, route.body, route.body_may_be_absent)


def _url(scope: Scope) -> str:
    query = scope["query_string"].decode("latin-1")
    return f"{scope['path']}?{query}" if query else str(scope["path"])


class Open:
    """Lets requests wait until there is an application, and ends those that last when told to."""

    def __init__(self) -> None:
        self._app: asyncio.Future[Application] = asyncio.get_running_loop().create_future()
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, app: Application) -> None:
        """Answer from now on, beginning with those who wait."""
        self._app.set_result(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            app = await asyncio.shield(self._app)
            await app(scope, receive, send)
        except asyncio.CancelledError:
            # The server stops: the socket is dropped, which clients take as a reason to come back.
            return
        finally:
            self._running.discard(task)

    async def end(self) -> None:
        """Drop every request that is not answered yet."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
