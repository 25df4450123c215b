"""Syncing: what the two sides of a sync say to each other. Server and client speak it with the same code.

    records          what is said, record by record
    stream           records on their way, compressed and bounded
    having           which contents the other side has already
    delta            a large file that changed
    growing          a tree that records change
    telling          two trees as what turns one into the other
    ignoring         what is left out
    settling         what becomes of everybody

Imported by: `sdk`. Imports: `petri.trees`, `petri.errors`.
"""

from petri.syncing.delta import WORTH_SIGNING, Delta, Signature, compare, instructions, rebuild, sign
from petri.syncing.growing import Growing
from petri.syncing.having import MOST_DIGESTS, asked_digests, decode_held, encode_held
from petri.syncing.ignoring import GITIGNORE, LONGEST_RULES, PETRIIGNORE, STAGE, Ignoring
from petri.syncing.records import (
    LONGEST_PATH,
    NOTHING,
    Agreed,
    Base,
    ChangedFile,
    Clash,
    Delete,
    End,
    KnownFile,
    MakeFolder,
    MakeLink,
    Move,
    Record,
    Said,
    SetMode,
    WholeFile,
    payload_length,
)
from petri.syncing.settling import Meeting, Mode, Prefer, Settled, but, settle
from petri.syncing.stream import PIECE_BYTES, Incoming, Outgoing, Source, compressed
from petri.syncing.telling import NewFile, Step, steps

__all__ = [
    "GITIGNORE",
    "LONGEST_PATH",
    "LONGEST_RULES",
    "MOST_DIGESTS",
    "NOTHING",
    "PETRIIGNORE",
    "PIECE_BYTES",
    "STAGE",
    "WORTH_SIGNING",
    "Agreed",
    "Base",
    "ChangedFile",
    "Clash",
    "Delete",
    "Delta",
    "End",
    "Growing",
    "Ignoring",
    "Incoming",
    "KnownFile",
    "MakeFolder",
    "MakeLink",
    "Meeting",
    "Mode",
    "Move",
    "NewFile",
    "Outgoing",
    "Prefer",
    "Record",
    "Said",
    "SetMode",
    "Settled",
    "Signature",
    "Source",
    "Step",
    "WholeFile",
    "asked_digests",
    "but",
    "compare",
    "compressed",
    "decode_held",
    "encode_held",
    "instructions",
    "payload_length",
    "rebuild",
    "settle",
    "sign",
    "steps",
]
