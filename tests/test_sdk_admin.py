"""Keys, tenants and quotas from Python, against a real server."""

import inspect
import signal
from collections.abc import Iterator

import pytest

from petri import AsyncClient, Client
from petri.errors import Busy, Conflict, Forbidden, InvalidField, NotFound, OverQuota, Unauthorized
from petri.sdk import Admin, AsyncAdmin
from tests.conftest import Server

pytestmark = pytest.mark.long

OPERATOR = "the-operator-s-own-key-0123"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("locked"), {"PETRI_API_KEY": OPERATOR}).start()
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture
def operator(locked: Server) -> Iterator[Client]:
    with Client(locked.url, OPERATOR) as found:
        yield found


def test_a_key_s_whole_life(locked: Server, operator: Client) -> None:
    made = operator.admin.create_key("ci", tenant="acme", scope="run", expires_in_s=60)
    with Client(locked.url, made.key) as petri:
        sandbox = petri.create()
        assert sandbox.key_name == "ci"
        assert petri.exec(sandbox.id, command="true").exit_code == 0
        with pytest.raises(Forbidden, match="scope `admin`"):
            list(petri.admin.keys())
        with pytest.raises(NotFound):
            operator.sandbox(sandbox.id)

        operator.admin.revoke_key(made.id)

        with pytest.raises(Unauthorized):
            petri.sandbox(sandbox.id)
    assert [key.id for key in operator.admin.keys(tenant="acme", revoked=True)] == [made.id]
    assert list(operator.admin.keys(tenant="acme")) == []
    kinds = [event.kind for event in operator.admin.tenant_events("acme")]
    assert kinds == ["tenant.create", "key.create", "key.revoke"]


def test_refusals_are_errors_of_their_own(operator: Client) -> None:
    operator.admin.create_key("taken", tenant="refusals")

    with pytest.raises(Conflict):
        operator.admin.create_key("taken", tenant="refusals")
    with pytest.raises(InvalidField) as refused:
        operator.admin.create_key("environment")
    assert refused.value.field == "name"
    with pytest.raises(NotFound):
        operator.admin.revoke_key("aaaaaaaa")
    with pytest.raises(NotFound):
        operator.admin.tenant("nobody")


def test_quotas_are_set_and_told(locked: Server, operator: Client) -> None:
    key = operator.admin.create_key("k", tenant="small").key
    told = operator.admin.set_quotas("small", sandboxes=1, runs=7)
    assert (told.quotas.sandboxes, told.quotas.runs, told.own_quotas) == (1, 7, ["runs", "sandboxes"])

    with Client(locked.url, key, retries=0) as petri:
        petri.create()
        with pytest.raises(OverQuota, match="quota `sandboxes` is 1"):
            petri.create()

    assert operator.admin.set_quotas("small", runs=None).own_quotas == ["sandboxes"]
    assert operator.admin.tenant("small").usage.sandboxes == 1
    assert "small" in [tenant.name for tenant in operator.admin.tenants()]
    assert not issubclass(OverQuota, Busy), "one does not go away by waiting"


async def test_a_program_with_an_event_loop_may_ask_the_same(locked: Server) -> None:
    async with AsyncClient(locked.url, OPERATOR) as petri:
        made = await petri.admin.create_key("async", tenant="async")
        assert [key.name async for key in petri.admin.keys(tenant="async")] == ["async"]
        await petri.admin.set_quotas("async", disk_bytes=2**20)
        assert (await petri.admin.tenant("async")).quotas.disk_bytes == 2**20
        await petri.admin.revoke_key(made.id)
        assert [event.kind async for event in petri.admin.tenant_events("async")][-1] == "key.revoke"
        assert {"default", "async"} <= {tenant.name async for tenant in petri.admin.tenants()}


def test_both_offer_the_same_calls_and_say_what_they_do() -> None:
    def calls(admin: type) -> dict[str, list[str]]:
        found = inspect.getmembers(admin, inspect.isfunction)
        assert all(call.__doc__ for name, call in found if not name.startswith("_"))
        return {name: list(inspect.signature(call).parameters) for name, call in found}

    assert calls(AsyncAdmin) == calls(Admin)
