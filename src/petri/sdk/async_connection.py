"""Talking to one server: retries, refusals as errors, streams that survive a broken connection.

`sync_connection.py` is generated from this file by `scripts/generate-sdk`.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel

from petri import __version__
from petri.errors import Invalid, PetriError, Unavailable
from petri.sdk.asking import Ask, as_json, pause_after_failure, pause_after_refusal
from petri.sdk.bodies import PIECE_BYTES
from petri.sdk.config import api_key, is_loopback, server_url
from petri.sdk.events import Event
from petri.sdk.following import Following, fell_silent
from petri.sdk.refusals import from_answer, from_failure, understood
from petri.sdk.waiting import async_flow, async_pause
from petri.wire import EventList, KeyList, RunList, SandboxList, SnapshotList, TenantList

T = TypeVar("T", bound=BaseModel)
PageT = TypeVar("PageT", SandboxList, RunList, EventList, SnapshotList, KeyList, TenantList)

PAGE = 100
"""How many of a list are fetched at a time."""
CONNECT_S = 5.0
SILENCE_S = 60.0
"""A stream says something every few seconds; after this long its connection is dead."""


class AsyncConnection:
    """One server, and how patiently to talk to it."""

    def __init__(self, url: str | None, key: str | None, timeout_s: float, retries: int) -> None:
        self.url = server_url(url)
        self._timeout_s = timeout_s
        self._retries = retries
        self._http = httpx.AsyncClient(
            headers=_headers(api_key(key)),
            # Reading the list of authorities takes longer than a whole call to a server on this machine,
            # and plain HTTP has no use for it.
            verify=self.url.startswith("https:"),
            # A proxy named in the environment cannot reach this machine's own loopback.
            trust_env=not is_loopback(self.url),
        )

    async def aclose(self) -> None:
        """Close the connections that are kept open between calls."""
        await self._http.aclose()

    async def ask(self, ask: Ask, kind: type[T]) -> T:
        """Make one call and return its answer."""
        async with self.answered(ask) as response:
            return understood(await self._read(response), kind, self.url)

    async def tell(self, ask: Ask) -> None:
        """Make one call whose answer nobody needs."""
        async with self.answered(ask) as response:
            await self._read(response)  # a connection is used again only once its answer has been read

    async def pages(
        self, ask: Ask, kind: type[PageT], limit: int | None = None
    ) -> AsyncGenerator[PageT, None]:
        """Yield page after page of a list, with `limit` items at most."""
        params: dict[str, Any] = dict(ask.params)
        while limit is None or limit > 0:
            params["limit"] = PAGE if limit is None else min(limit, PAGE)
            page = await self.ask(Ask(ask.method, ask.path, params=params), kind)
            yield page
            if page.next_cursor is None:
                return
            params["cursor"] = page.next_cursor
            limit = None if limit is None else limit - params["limit"]

    async def chunks(self, ask: Ask) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of an answer as they come; raise if they do not all come."""
        async with self.answered(ask) as response:
            async for chunk in self.body(response):
                yield chunk

    async def body(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of `response`; raise if they do not all come."""
        try:
            async for chunk in response.aiter_bytes(PIECE_BYTES):
                yield chunk
        except httpx.TransportError as failure:
            raise from_failure(failure, self.url) from failure

    async def follow(self, ask: Ask, following: Following) -> AsyncGenerator[Event, None]:
        """Yield a run's events to its end, coming back whenever the connection breaks."""
        while True:
            failure: PetriError = fell_silent()
            try:
                async with self.answered(ask) as response:
                    async for chunk in response.aiter_bytes():
                        for event in following.take(chunk):
                            yield event
                        if following.ended:
                            return
            except httpx.TransportError as broken:
                failure = from_failure(broken, self.url)
            except Unavailable as refusal:
                failure = refusal
            ask, pause_s = following.broke(failure)
            await async_pause(pause_s)

    @asynccontextmanager
    async def answered(self, ask: Ask) -> AsyncIterator[httpx.Response]:
        """Yield the answer with its body still to come; a refusal is raised as the error it names."""
        response = await self._send(ask)
        try:
            yield response
        finally:
            await response.aclose()

    async def _send(self, ask: Ask) -> httpx.Response:
        attempt = 0
        while True:
            try:
                response = await self._http.send(self._request(ask), stream=True)
                if response.is_success:
                    return response
                await response.aread()
            except httpx.TransportError as failure:
                error = from_failure(failure, self.url)
                pause_s = pause_after_failure(failure, ask, attempt)
            else:
                error = from_answer(response)
                pause_s = pause_after_refusal(response, ask, attempt)
            if pause_s is None or attempt >= self._retries:
                raise error
            await async_pause(pause_s)
            attempt += 1

    def _request(self, ask: Ask) -> httpx.Request:
        content: Any = None
        headers = {"Accept": "text/event-stream" if ask.streams else "*/*", **ask.headers}
        if ask.json is not None:
            content = as_json(ask.json)
            headers["Content-Type"] = "application/json"
        elif ask.body is not None:
            content = async_flow(ask.body.chunks())
            headers.update(ask.body.headers)
        return self._http.build_request(
            ask.method, self._address(ask), content=content, headers=headers, timeout=self._timeout(ask)
        )

    def _address(self, ask: Ask) -> httpx.URL:
        query = urlencode(ask.params, errors="surrogateescape")
        try:
            return httpx.URL(f"{self.url}{ask.path}?{query}" if query else self.url + ask.path)
        except httpx.InvalidURL as error:
            raise Invalid(f"no address can hold this: {error}") from None

    def _timeout(self, ask: Ask) -> httpx.Timeout:
        read: float | None = self._timeout_s
        if ask.streams:
            read = SILENCE_S
        elif ask.patient:
            read = None
        return httpx.Timeout(self._timeout_s, read=read, connect=min(CONNECT_S, self._timeout_s))

    async def _read(self, response: httpx.Response) -> bytes:
        try:
            return await response.aread()
        except httpx.TransportError as failure:
            raise from_failure(failure, self.url) from failure


def _headers(key: str | None) -> dict[str, str]:
    headers = {"User-Agent": f"petri-python/{__version__}"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    return headers
