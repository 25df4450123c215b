"""HEAD: what GET would say, without its body. The connection leaves out the body; see `front/exchange.py`."""

from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send


class HeadAsGet:
    """ASGI middleware that has every GET answer HEAD too, unless a route does so itself at less cost."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on, as GET if nobody takes it as HEAD."""
        if scope["type"] == "http" and scope["method"] == "HEAD" and not _is_taken(scope):
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


def _is_taken(scope: Scope) -> bool:
    return any(route.matches(scope)[0] is Match.FULL for route in scope["app"].routes)
