"""/openapi.json, and /docs: one page of our own that shows it, and loads nothing from anywhere else."""

import base64
import hashlib
import json
import re
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

router = APIRouter()

_PAGE = Path(__file__).with_name("docs.html").read_text(encoding="utf-8")


def _hash_of(tag: str) -> str:
    """Return the only script, or style, that the page may have, as a browser is told of it."""
    found = re.search(rf"<{tag}>(.*?)</{tag}>", _PAGE, re.DOTALL)
    assert found is not None
    digest = hashlib.sha256(found[1].encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"script-src {_hash_of('script')}",
        f"style-src {_hash_of('style')}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


@router.get("/docs", include_in_schema=False)
async def show_docs() -> HTMLResponse:
    """Show every call, with a form to try it."""
    headers = {"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer"}
    return HTMLResponse(_PAGE, headers=headers)


@router.get("/openapi.json", include_in_schema=False)
async def show_openapi(request: Request) -> Response:
    """Describe every call, for programs. Anybody may ask, so it is written out once."""
    state = request.app.state
    if not hasattr(state, "document"):
        state.document = json.dumps(request.app.openapi(), separators=(",", ":")).encode()
    return Response(state.document, media_type="application/json")
