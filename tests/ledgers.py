"""A ledger that was made before, for whoever tests something else: making one takes long."""

import asyncio
import atexit
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from petri.ledger import Ledger
from petri.ledger.ballast import WHOLE_BYTES


@cache
def _made() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="petri-ledger-"))
    atexit.register(shutil.rmtree, folder)
    ledger = Ledger.open(f"sqlite:///{folder / 'ledger.db'}")
    with ThreadPoolExecutor(1) as aside:  # whoever asks may be in an event loop, and there is one a thread
        aside.submit(asyncio.run, ledger.close()).result()
    return folder / "ledger.db"


def put_ledger(folder: Path) -> str:
    """Have one in `folder`, as if it had been made there, and return its address; one that is there stays."""
    path = folder / "ledger.db"
    if not path.exists():
        shutil.copyfile(_made(), path)
        with (folder / "ledger.db-ballast").open("wb") as ballast:
            ballast.truncate(WHOLE_BYTES)  # all hole: noise for it takes as long as the ledger itself
    return f"sqlite:///{path}"
