"""Routes: declared beside their handlers, and found by walking the segments of a path."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import msgspec

from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import Response, Stream

Handler: TypeAlias = Callable[[Request[Any, Any]], Awaitable[Response | Stream]]
H = TypeVar("H", bound=Callable[..., Awaitable[Response | Stream]])


def always(body: object) -> bool:
    """For `grants`: every request to this route grants something."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path, with everything that its description in `/doc` needs."""

    method: str
    path: str
    """With parameters in braces: `/session/{sessionID}`. A final `*` matches the rest of the
    path."""
    operation: str
    """OpenCode's operation id, or one of kedge's own that begins with `kedge.`."""
    handler: Handler
    query: type[msgspec.Struct]
    body: Any
    body_may_be_absent: bool
    body_may_be_large: bool
    """Whether the body may be as large as the settings allow, instead of 1 MiB."""
    answer: Any
    """The type of the JSON answer, or `bytes` or `None`; for a stream, the type of its events."""
    status: int
    media_type: str
    reads_files: bool
    """Whether it reads many files with a program or thread; only a few of these run at once."""
    grants: Callable[[Any], bool] | None
    """Whether a request with this body gives an agent new permissions; None if no request does."""

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (inspect.getdoc(self.handler) or "").partition("\n\n")[0].replace("\n", " ")

    @property
    def parameters(self) -> list[str]:
        """The names in braces."""
        return [part[1:-1] for part in _segments(self.path) if part.startswith("{")]


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes that one module declares."""

    all: list[Route] = field(default_factory=list)
    reads_files: bool = False
    """Whether all of these routes read many files, not only those declared so."""

    def get(self, path: str, operation: str, **said: Any) -> Callable[[H], H]:  # noqa: ANN401 - as `add`
        return self.add("GET", path, operation, **said)

    def post(self, path: str, operation: str, **said: Any) -> Callable[[H], H]:  # noqa: ANN401 - as `add`
        return self.add("POST", path, operation, **said)

    def patch(self, path: str, operation: str, **said: Any) -> Callable[[H], H]:  # noqa: ANN401 - as `add`
        return self.add("PATCH", path, operation, **said)

    def delete(self, path: str, operation: str, **said: Any) -> Callable[[H], H]:  # noqa: ANN401 - as `add`
        return self.add("DELETE", path, operation, **said)

    def put(self, path: str, operation: str, **said: Any) -> Callable[[H], H]:  # noqa: ANN401 - as `add`
        return self.add("PUT", path, operation, **said)

    def add(
        self,
        method: str,
        path: str,
        operation: str,
        *,
        query: type[msgspec.Struct] = NoQuery,
        body: Any = NoBody,  # noqa: ANN401 - a union is no type
        body_may_be_absent: bool = False,
        body_may_be_large: bool = False,
        answer: Any = None,  # noqa: ANN401 - a union is no type
        status: int = 200,
        media_type: str = "application/json",
        reads_files: bool = False,
        grants: Callable[[Any], bool] | None = None,
    ) -> Callable[[H], H]:
        """Declare that the decorated function answers these requests."""

        def declare(handler: H) -> H:
            self.all.append(
                Route(
                    method=method,
                    path=path,
                    operation=operation,
                    handler=handler,
                    query=query,
                    body=body,
                    body_may_be_absent=body_may_be_absent,
                    body_may_be_large=body_may_be_large,
                    answer=answer,
                    status=status,
                    media_type=media_type,
                    reads_files=self.reads_files or reads_files,
                    grants=grants,
                )
            )
            return handler

        return declare


class _Node:
    __slots__ = ("below", "name", "parameter", "routes")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.below: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.routes: dict[str, Route] = {}


class Router:
    """Finds the route of a request; case and extra slashes do not matter, as in OpenCode."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._insert(route)

    def _insert(self, route: Route) -> None:
        node = self._root
        for part in _segments(route.path):
            if part.startswith("{"):
                node.parameter = node.parameter or _Node(part[1:-1])
                assert node.parameter.name == part[1:-1], f"two names for one place: {route.path}"
                node = node.parameter
            else:
                node = node.below.setdefault(part.lower(), _Node())
        assert route.method not in node.routes, f"declared twice: {route.method} {route.path}"
        node.routes[route.method] = route

    def find(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """The routes of a path by method (none if there is no such path) and its parameters."""
        node: _Node | None = self._root
        parameters: dict[str, str] = {}
        rest: _Node | None = None
        for part in _segments(path):
            assert node is not None
            rest = node.below.get("*", rest)
            exact = node.below.get(part) or node.below.get(part.lower())
            if exact is None and node.parameter is not None:
                parameters[node.parameter.name] = part
                exact = node.parameter
            if exact is None:
                return (rest.routes if rest is not None else {}), {}
            node = exact
        assert node is not None
        return node.routes, parameters


def _segments(path: str) -> Iterator[str]:
    return (part for part in path.split("/") if part)
