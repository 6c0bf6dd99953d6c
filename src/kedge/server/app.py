"""The ASGI application: routes a request, decodes it and sends the response."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from kedge._async import to_the_end
from kedge.domain.errors import EngineClosed
from kedge.server.errors import ClientGone, RouteNotFound, WrongMethod, WrongType, error_answer
from kedge.server.grants import CommandGuard
from kedge.server.request_body import Bodies, check_framing
from kedge.server.requests import Backend, NoBody, Request, body_value, parsed_query, query_value
from kedge.server.responses import Receive, Response, Send, Stream, send_answer
from kedge.server.router import Route, Router
from kedge.server.security import Scope

T = TypeVar("T")

AT_ONCE = 4
"""Requests that read files at the same time. Each may run a program that reads a whole tree."""


class FileQueue:
    """A queue for requests that read many files."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)

    async def run(self, work: Callable[[], Awaitable[T]], receive: Receive) -> T:
        """Run the work when its turn comes and return its result.

        If the client disconnects, the work is cancelled; its place is free once it has ended.
        """
        working = asyncio.ensure_future(self._in_order(work))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientGone
        finally:
            working.cancel()
            leaving.cancel()
            await to_the_end(asyncio.gather(working, leaving, return_exceptions=True))
        return working.result()

    async def _in_order(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._places:
            return await work()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_LONG_TO_DECODE = 1024 * 1024


class Application:
    """Answers the requests of all clients with one backend."""

    def __init__(self, routes: Sequence[Route], backend: Backend) -> None:
        self._router = Router(routes)
        self._backend = backend
        self._bodies = Bodies(backend.settings.max_body)
        self._files = FileQueue()
        self._guard = None if backend.settings.commands_may_grant else CommandGuard()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Mapping[bytes, bytes] = scope["kedge.headers"]
        accepted = headers.get(b"accept-encoding", b"")
        try:
            answer = await self._answer(scope, headers, receive)
        except asyncio.CancelledError:
            await _send_away(scope, send)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
            answer = error_answer(error)
        if isinstance(answer, Response):
            await send_answer(answer, accepted, send)
        elif scope["method"] == "HEAD":
            await send_answer(Response(b"", type=b"text/event-stream"), b"", send)
        else:
            await answer(receive, send)

    async def _answer(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Response | Stream:
        check_framing(headers)
        route, parameters = self._route(scope["method"], scope["path"])
        asked = parsed_query(scope["query_string"])
        query = query_value(asked, route.query)
        body = await self._body(route, headers, receive)
        if self._guard is not None and route.grants is not None and route.grants(body):
            await self._guard.check(scope)
        request = Request(
            backend=self._backend,
            path=parameters,
            query=query,
            body=body,
            headers=headers,
            asked=asked,
            url=_url(scope),
        )
        if route.reads_files:
            return await self._files.run(partial(route.handler, request), receive)
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
        raw = await self._bodies.read(headers, receive, may_be_large=route.body_may_be_large)
        wanted = (raw, route.body, route.body_may_be_absent)
        if len(raw) > _LONG_TO_DECODE:
            return await asyncio.to_thread(body_value, *wanted)
        return body_value(*wanted)


def _url(scope: Scope) -> str:
    query = scope["query_string"].decode("latin-1")
    return f"{scope['path']}?{query}" if query else str(scope["path"])


async def _send_away(scope: Scope, send: Send) -> None:
    """Refuse a request because the server is shutting down. A request for a stream is disconnected,
    like the streams that are open: a browser takes any other answer as final and never
    reconnects."""
    if scope["path"].rstrip("/").lower().endswith("/event"):
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        return
    stopping = EngineClosed("the server is shutting down; try again when it has been restarted")
    await send_answer(error_answer(stopping), b"", send)


class StartupGate:
    """Holds requests until the application is ready, and refuses them after shutdown."""

    def __init__(self) -> None:
        self._app: asyncio.Future[Application] = asyncio.get_running_loop().create_future()
        self._inside: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def open(self, app: Application) -> None:
        """Answer requests from now on, starting with those that are waiting."""
        self._app.set_result(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_closed:
            await _send_away(scope, send)
            return
        task = asyncio.current_task()
        assert task is not None
        self._inside.add(task)
        try:
            await self._answer(scope, receive, send)
        except asyncio.CancelledError:
            # A stream is cut off without an end, which makes clients reconnect.
            return
        finally:
            self._inside.discard(task)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = self._app.result() if self._app.done() else await asyncio.shield(self._app)
        except asyncio.CancelledError:
            await _send_away(scope, send)
            return
        await app(scope, receive, send)

    async def close(self) -> None:
        """Refuse all requests from now on, including those that are waiting."""
        self._is_closed = True
        inside = list(self._inside)
        for task in inside:
            task.cancel()
        await asyncio.gather(*inside, return_exceptions=True)
