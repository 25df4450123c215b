"""How the ledger comes to be open: its file is brought up to date, and there is who reads and writes it."""

from sqlalchemy.exc import DBAPIError

from petri.ledger import expiry, migrations, sqlite, tables
from petri.ledger.readers import Readers
from petri.ledger.remembered import Remembered
from petri.ledger.writer import Writer


def opened(url: str) -> tuple[Writer, Readers | Writer, Remembered]:
    """Return who writes the ledger at `url`, who reads it, and what they remember of it."""
    database = sqlite.Sqlite(url)
    connection, remembered = database.writer(), Remembered()
    try:
        migrations.upgrade(connection)
        sqlite.tell_changes(connection, tables.sandboxes, expiry.COLUMNS, remembered.change)
    except DBAPIError as error:
        connection.close()
        raise sqlite.explain(error) from error
    except BaseException:
        connection.close()
        raise
    transactions = sqlite.Transactions(connection, remembered.settle)
    writer = Writer(connection, transactions, sqlite.explain, database.ballast)
    return writer, writer if database.in_memory else Readers(database.reader, sqlite.explain), remembered
