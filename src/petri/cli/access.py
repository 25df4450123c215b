"""`petri keys` and `petri tenants`: who may come in, and how much they may have.

They ask the server. Where none runs on this machine they work on its home themselves: that is how a first
key is made.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from petri.cli.options import connect, duration, json_before, json_option
from petri.cli.options import size as size_of
from petri.cli.printing import NOTHING, age, plain, print_json, print_table, size
from petri.errors import Unavailable

if TYPE_CHECKING:
    from petri.home import Home
    from petri.sdk import Admin, ScopeName
    from petri.wire import TenantAnswer

DEFAULT = "default"


@click.group()
@json_before
def keys() -> None:
    """Make, list and revoke the keys that open a server.

    A running server is asked with PETRI_API_KEY, which must be an `admin` key; one that has no keys yet
    takes the first from anybody on its machine. With no server running, PETRI_HOME is used directly.

    Example: petri keys create laptop --scope admin
    """


@keys.command("create")
@click.argument("name")
@click.option("--tenant", help="Whose sandboxes it opens; made if new. Default: that of the key in use.")
@click.option(
    "--scope",
    type=click.Choice(["read", "run", "admin"]),
    default="run",
    show_default=True,
    help="read: look. run: also create, run, delete. admin: also keys, tenants and quotas.",
)
@click.option("--expires", type=duration, help="It opens nothing any more after this long, such as 30d.")
@json_option
def create_key(
    name: str, tenant: str | None, scope: "ScopeName", expires: float | None, *, as_json: bool
) -> None:
    """Make a key and print it. It is shown this once; the server keeps only a hash.

    Example: petri keys create ci --tenant acme --expires 30d
    """
    with _door() as door:
        key = door.create_key(name, tenant=tenant, scope=scope, expires_in_s=expires)
    if as_json:
        print_json(key)
        return
    click.echo(key.key)
    until = f", until {key.expires_at}" if key.expires_at else ""
    click.echo(f"petri: key {key.id} of tenant {key.tenant}, scope {key.scope}{until}", err=True)


@keys.command("ls")
@click.option("--tenant", help="Only this tenant's.")
@click.option("-a", "--all", "revoked", is_flag=True, help="Those that were revoked, too.")
@json_option
def list_keys(tenant: str | None, *, revoked: bool, as_json: bool) -> None:
    """List keys, newest first.

    Example: petri keys ls --tenant acme
    """
    with _door() as door:
        found = list(door.keys(tenant=tenant, revoked=revoked))
    if as_json:
        print_json(found)
    else:
        print_table(
            ("ID", "NAME", "TENANT", "SCOPE", "STATE", "CREATED", "LAST USED", "EXPIRES"),
            [
                (
                    k.id,
                    k.name,
                    k.tenant,
                    k.scope,
                    k.state,
                    age(k.created_at),
                    age(k.last_used_at),
                    k.expires_at,
                )
                for k in found
            ],
        )


@keys.command("revoke")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@json_option
def revoke_keys(ids: tuple[str, ...], *, as_json: bool) -> None:
    """Revoke keys by their ids: they open nothing from now on.

    Example: petri keys revoke k7wq2m5x
    """
    with _door() as door:
        for key_id in ids:
            door.revoke_key(key_id)
    if as_json:
        print_json({"revoked": list(ids)})


@click.group()
@json_before
def tenants() -> None:
    """List tenants and what they use, and set their quotas. For `admin` keys.

    Example: petri tenants ls
    """


@tenants.command("ls")
@json_option
def list_tenants(*, as_json: bool) -> None:
    """List tenants with what they use and what they may, oldest first.

    Example: petri tenants ls
    """
    with _door() as door:
        found = list(door.tenants())
    if as_json:
        print_json(found)
    else:
        _print_tenants(found)


def _quota(text: str) -> int | str:
    if text != DEFAULT and not text.isdecimal():
        raise click.BadParameter(f"{text!r} is none; write a number, 0 for no bound, or {DEFAULT!r}")
    return text if text == DEFAULT else int(text)


def _size_quota(text: str) -> int | str:
    return text if text == DEFAULT else size_of(text)


@tenants.command("set")
@click.argument("tenant")
@click.option("--sandboxes", type=_quota, help="Live sandboxes; 0 is no bound, `default` the server's own.")
@click.option("--runs", type=_quota, help="Runs, running and waiting; 0 and `default` as above.")
@click.option(
    "--disk", type=_size_quota, help="Disk of its sandboxes, such as 10g; 0 and `default` as above."
)
@json_option
def set_quotas(
    tenant: str, sandboxes: int | str | None, runs: int | str | None, disk: int | str | None, *, as_json: bool
) -> None:
    """Set quotas of a tenant, which is made if there is none. What is not named stays.

    Example: petri tenants set acme --sandboxes 20 --runs 8 --disk 10g
    """
    named = {"sandboxes": sandboxes, "runs": runs, "disk_bytes": disk}
    quotas = {
        name: None if isinstance(most, str) else most for name, most in named.items() if most is not None
    }
    with _door() as door:
        answer = door.set_quotas(tenant, **quotas)
    if as_json:
        print_json(answer)
    else:
        _print_tenants([answer])


def _print_tenants(found: "list[TenantAnswer]") -> None:
    print_table(
        ("TENANT", "SANDBOXES", "RUNS", "DISK"),
        [
            (
                tenant.name,
                _of(str(tenant.usage.sandboxes), tenant.quotas.sandboxes, str),
                _of(str(tenant.usage.runs), tenant.quotas.runs, str),
                _of(_disk(tenant.usage.disk_bytes), tenant.quotas.disk_bytes, size),
            )
            for tenant in found
        ],
    )


def _of(used: str, most: int, shown: Callable[[int], str]) -> str:
    return f"{used} of {shown(most)}" if most else used


def _disk(used: int | None) -> str:
    return NOTHING if used is None else size(used)


@contextmanager
def _door() -> "Iterator[Admin | Home]":
    """Yield the server, or the home it would use where none runs on this machine."""
    with connect(retries=0) as petri:  # nobody there is an answer too
        try:
            petri.health()
        except Unavailable:
            if not petri.is_here:
                raise
        else:
            yield petri.admin
            return
    from petri.home import at_home

    with at_home() as home:
        click.echo(f"petri: no server answers at {petri.url}; working on {plain(home.where)}", err=True)
        yield home
