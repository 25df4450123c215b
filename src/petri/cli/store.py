"""`petri fsck`: whether everything is there that was kept."""

import sys

import click

from petri.cli.options import json_option
from petri.cli.printing import plain, print_json


@click.command()
@click.option("--deep", is_flag=True, help="Read every byte, too. Takes as long as that takes.")
@json_option
def fsck(*, deep: bool, as_json: bool) -> None:
    """Check what is kept of snapshots and histories in PETRI_HOME. Exits 1 if something is wrong.

    No server may be running there.

    Example: petri fsck --deep
    """
    from petri.home import looking

    with looking() as storeroom:
        found = {tenant: storeroom.check(tenant, deep=deep) for tenant in storeroom.tenants()}
    wrong = {tenant: findings for tenant, findings in found.items() if findings}
    if as_json:
        print_json({"deep": deep, "tenants": len(found), "findings": wrong})
    else:
        for tenant, findings in wrong.items():
            for finding in findings:
                click.echo(f"{plain(tenant)}: {plain(finding)}")
        if not wrong:
            click.echo("all is well")
    sys.exit(1 if wrong else 0)
