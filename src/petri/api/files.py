"""/v1/sandboxes/{id}/files: put, get, list and delete files."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from petri.api.context import CallerOf, FilePath, HostOf, ListedPath
from petri.api.downloads import MEDIA, archive_response, file_response, named_versions
from petri.api.presence import while_there
from petri.api.problems import DOCUMENTED
from petri.api.shapes import entry_answer, shown_path
from petri.api.uploads import Form, in_pieces
from petri.operations import Caller, Host, files
from petri.wire import FileAnswer, FilesWritten, Listing
from petri.workspace import OpenFile, Written

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/files", responses=DOCUMENTED, tags=["files"])

_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"file": {"type": "array", "items": _BYTES["schema"], "minItems": 1}},
                    "required": ["file"],
                }
            }
        },
    }
}
_RAW = {"requestBody": {"content": {"application/octet-stream": _BYTES}}}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The bytes.",
        "content": {"application/octet-stream": _BYTES, **{m: _BYTES for m in MEDIA.values()}},
    },
    206: {"description": "The range of bytes asked for.", "content": {"application/octet-stream": _BYTES}},
    304: {"description": "The caller has this version."},
}
ArchiveKind = Literal["tar", "tar.gz", "tar.zst", "zip"]


@router.post("", status_code=201, openapi_extra=_FORM)
async def upload_files(
    sandbox_id: str,
    request: Request,
    host: HostOf,
    caller: CallerOf,
    extract: Annotated[bool, Query(description="Unpack .zip, .tar, .tar.gz and .tar.zst parts.")] = False,
) -> FilesWritten:
    """Upload one or many files as parts named `file`; all of them appear, or none."""
    sandbox = await files.live_sandbox(host, caller, sandbox_id)
    receive = files.receive_to_unpack if extract else files.receive
    async with receive(host, sandbox) as intake:
        form = Form(request.headers.get("content-type", ""), intake, extract=extract)
        await in_pieces(request, form.take, intake.call_off)
        form.finish()
        return _written(await files.commit(host, sandbox, intake))


@router.get("", response_model=Listing)
async def list_files(  # noqa: PLR0913 - each is a parameter of the contract
    sandbox_id: str,
    request: Request,
    host: HostOf,
    caller: CallerOf,
    path: ListedPath,
    recursive: Annotated[bool, Query(description="With everything below.")] = False,
    archive: Annotated[ArchiveKind | None, Query(description="Download the folder instead.")] = None,
) -> Listing | Response:
    """List a folder, its top unless `path` says otherwise; or with `archive` download it."""
    if archive is not None:
        return await get_file(sandbox_id, request, host, caller, path, archive)
    errand = host.workspaces.errand()
    looking = files.look(host, caller, sandbox_id, path, errand, recursive=recursive)
    found = await while_there(request, errand.call_off, looking)
    entries = [entry_answer(entry) for entry in found.entries]
    return Listing(path=shown_path(found.path)[0], entries=entries, truncated=found.truncated)


@router.get("/{path:any}", responses=_FILE, response_class=Response)
async def get_file(
    sandbox_id: str,
    request: Request,
    host: HostOf,
    caller: CallerOf,
    path: FilePath,
    archive: ArchiveKind | None = None,
) -> Response:
    """Download a file, or with `archive` a folder."""
    name = PurePosixPath(path).name or sandbox_id
    if archive is None:
        return file_response(request, await _opened(sandbox_id, request, host, caller, path), name)
    errand = host.workspaces.errand()
    packing = files.archive(host, caller, sandbox_id, path, archive, errand)
    packed = await while_there(request, errand.call_off, packing)
    return await archive_response(packed, f"{name}.{archive}", MEDIA[archive])


@router.head("/{path:any}", responses=_FILE, response_class=Response)
async def head_file(
    sandbox_id: str,
    request: Request,
    host: HostOf,
    caller: CallerOf,
    path: FilePath,
    archive: ArchiveKind | None = None,
) -> Response:
    """Say what a download would bring."""
    if archive is not None:
        return await get_file(sandbox_id, request, host, caller, path, archive)
    file = await _opened(sandbox_id, request, host, caller, path)
    return file_response(request, file, PurePosixPath(path).name)


async def _opened(sandbox_id: str, request: Request, host: Host, caller: Caller, path: str) -> OpenFile:
    errand = host.workspaces.errand()
    opening = files.open_file(host, caller, sandbox_id, path, errand, *named_versions(request))
    return await while_there(request, errand.call_off, opening)


@router.put("/{path:any}", status_code=201, openapi_extra=_RAW)
async def put_file(
    sandbox_id: str, request: Request, response: Response, host: HostOf, caller: CallerOf, path: FilePath
) -> FileAnswer:
    """Write one file; with `If-Match` only over that version, with `If-None-Match: *` only a new one."""
    sandbox = await files.live_sandbox(host, caller, sandbox_id)
    async with files.receive(host, sandbox) as intake:
        staged = intake.file(path)
        await in_pieces(request, staged.write, intake.call_off)
        staged.close()
        committing = files.commit(
            host,
            sandbox,
            intake,
            if_match=request.headers.get("if-match"),
            if_none_match=request.headers.get("if-none-match"),
        )
        written = await while_there(request, intake.call_off, committing)
    response.headers["ETag"] = f'"{written[0].digest}"'
    return _written(written).files[0]


@router.delete("/{path:any}", status_code=204)
async def delete_file(
    sandbox_id: str, request: Request, host: HostOf, caller: CallerOf, path: FilePath
) -> None:
    """Delete a file, a link, or a folder with everything in it."""
    errand = host.workspaces.errand()
    deleting = files.delete(host, caller, sandbox_id, path, request.headers.get("if-match"), errand)
    await while_there(request, errand.call_off, deleting)


def _written(written: list[Written]) -> FilesWritten:
    answers = [FileAnswer(path=file.path, size=file.size, digest=file.digest) for file in written]
    return FilesWritten(files=answers, filename=answers[0].path if len(answers) == 1 else None)
