"""`petri create`, `ls`, `show`, `rm`."""

import re
from typing import TYPE_CHECKING, Any

import click

from petri.cli.options import connect, duration, json_option, limit_options, pair
from petri.cli.printing import age, print_fields, print_json, print_table, size
from petri.errors import counted

if TYPE_CHECKING:
    from petri.sdk import Client, Limits, Peer
    from petri.wire import SandboxAnswer


_ADDRESS = re.compile("[0-9a-f]{64}")


@click.command()
@click.option("--name", help="Its name; a live sandbox of that name is returned, not made again.")
@click.option("--language", help="What its code is written in. Default: python.")
@click.option("--engine", help="What isolates its runs.")
@click.option("--ephemeral", is_flag=True, help="Gone, with everything, after its first run.")
@click.option("--ttl", type=duration, help="End it this long after now, such as 2h.")
@click.option("--idle", type=duration, help="End it this long after its last use.")
@click.option(
    "-e", "--env", type=pair, metavar="NAME=VALUE", multiple=True, help="A variable of all its runs."
)
@click.option("--metadata", type=pair, metavar="NAME=VALUE", multiple=True, help="A label to find it by.")
@click.option("--from-snapshot", help="The files to begin with: the id or the name of a snapshot.")
@click.option(
    "--peer",
    "peers",
    type=pair,
    metavar="NAME=SANDBOX[@MOMENT]",
    multiple=True,
    help="Let its runs read the files of SANDBOX at /peers/NAME: as they are then, or for good as in MOMENT, "
    "a tree or a snapshot by its id or its name.",
)
@limit_options
@json_option
def create(limits: "Limits | None", *, as_json: bool, **options: Any) -> None:
    """Create a sandbox and print its id.

    \b
    Example: petri create --name crawler --memory 512m --idle 2h
             petri create --name reviewer --peer writer=crawler
    """
    with connect() as petri:
        sandbox = petri.create(
            language=options["language"],
            name=options["name"],
            engine=options["engine"],
            lifetime="ephemeral" if options["ephemeral"] else None,
            ttl_s=options["ttl"],
            idle_s=options["idle"],
            env=dict(options["env"]),
            metadata=dict(options["metadata"]),
            peers=[_peer(petri, *each) for each in options["peers"]],
            limits=limits,
            from_snapshot=options["from_snapshot"],
        )
    if as_json:
        print_json(sandbox)
    else:
        click.echo(sandbox.id)


@click.command()
@click.option("-a", "--all", "ended_too", is_flag=True, help="Those that have ended, too.")
@click.option(
    "--metadata", type=pair, metavar="NAME=VALUE", multiple=True, help="Only those with this label."
)
@click.option("--limit", type=click.IntRange(min=1), help="At most this many.")
@json_option
def ls(metadata: tuple[tuple[str, str], ...], limit: int | None, *, ended_too: bool, as_json: bool) -> None:
    """List sandboxes, newest first.

    Example: petri ls --metadata project=crawler
    """
    with connect() as petri:
        found = list(
            petri.sandboxes(state="all" if ended_too else None, metadata=dict(metadata), limit=limit)
        )
    if as_json:
        print_json(found)
    else:
        print_table(
            ("ID", "NAME", "STATE", "LANGUAGE", "CREATED", "LAST USED"),
            [(s.id, s.name, s.state, s.language, age(s.created_at), age(s.last_active_at)) for s in found],
        )


@click.command()
@click.argument("sandbox")
@json_option
def show(sandbox: str, *, as_json: bool) -> None:
    """Show one sandbox; an ended one is still found by its id.

    Example: petri show crawler
    """
    with connect() as petri:
        answer = petri.sandbox(sandbox)
    if as_json:
        print_json(answer)
    else:
        print_fields(_fields(answer))


@click.command()
@click.argument("sandboxes", metavar="SANDBOX...", nargs=-1, required=True)
@json_option
def rm(sandboxes: tuple[str, ...], *, as_json: bool) -> None:
    """Delete sandboxes with all their files. Their history stays. The id of a snapshot deletes that.

    Example: petri rm crawler
    """
    with connect() as petri:
        for sandbox in sandboxes:
            if sandbox.startswith("snap-"):
                petri.delete_snapshot(sandbox)
            else:
                petri.delete(petri.sandbox_id(sandbox))
    if as_json:
        print_json({"deleted": list(sandboxes)})


def _peer(petri: "Client", name: str, said: str) -> "Peer":
    sandbox, _, moment = said.partition("@")
    peer: Peer = {"sandbox": petri.sandbox_id(sandbox), "at": f"/peers/{name}"}
    if not moment:
        return peer
    return {**peer, "tree": moment} if _ADDRESS.fullmatch(moment) else {**peer, "snapshot": moment}


def _disk(sandbox: "SandboxAnswer") -> str:
    limits, used = sandbox.limits, sandbox.usage
    most = f"{size(limits.disk_bytes)} and {counted(limits.inodes, 'file')}"
    if used is None:
        return f"{most} at most"
    return f"{size(used.disk_bytes)} in {counted(used.inodes, 'file')} of {most}, {age(used.measured_at)} ago"


def _fields(sandbox: "SandboxAnswer") -> list[tuple[str, object]]:
    limits = sandbox.limits
    ended = sandbox.ended_at and f"{sandbox.ended_at} ({sandbox.ended_because})"
    expires = sandbox.expires_at and f"{sandbox.expires_at} ({sandbox.expires_because})"
    return [
        ("id", sandbox.id),
        ("name", sandbox.name),
        ("state", sandbox.state),
        ("language", sandbox.language),
        ("engine", sandbox.engine),
        ("lifetime", sandbox.lifetime),
        ("created", f"{sandbox.created_at} ({age(sandbox.created_at)} ago)"),
        ("last used", f"{sandbox.last_active_at} ({age(sandbox.last_active_at)} ago)"),
        ("forked from", sandbox.forked_from),
        ("from snapshot", sandbox.from_snapshot),
        ("tree", sandbox.tree),
        ("expires", expires),
        ("ended", ended),
        (
            "limits",
            f"{limits.cpus:g} {'cpu' if limits.cpus == 1 else 'cpus'}, {size(limits.memory_bytes)}, "
            f"{counted(limits.processes, 'process')}, {limits.timeout_s:g} s, "
            f"{counted(limits.open_files, 'open file')}, {size(limits.tmp_bytes)} of /tmp",
        ),
        ("disk", _disk(sandbox)),
        ("network", sandbox.network.mode),
        ("env", ", ".join(sandbox.env_names)),
        ("peers", ", ".join(f"{each.at}={each.sandbox}" for each in sandbox.peers)),
        ("metadata", ", ".join(f"{key}={value}" for key, value in sandbox.metadata.items())),
        ("created by", sandbox.created_by),
        ("agent", sandbox.agent),
        ("key", sandbox.key_name),
    ]
